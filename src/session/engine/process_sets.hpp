// SPDX-License-Identifier: Apache-2.0
// The process sets that this rank's user holds, and whether they may be used.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/key.hpp"
#include "kolo/process_set.hpp"

namespace kolo::detail {

/// What a handle points to. `removed` is all that changes.
struct ProcessSetData {
  std::uint64_t session;
  internal::SetId id;
  std::vector<int> ranks;  // ascending
  int own_place;           // of this rank, -1 if it is no member
  mutable std::atomic<bool> removed{false};
};

}  // namespace kolo::detail

namespace kolo::internal::session {

/// Thread-safe.
class ProcessSets {
 public:
  ProcessSets(std::uint64_t session, int rank, int size);

  /// The members and this rank's place of a set of this session, for an operation of this type and
  /// name. Throws InvalidArgument for a set that was removed or is another session's, or of which
  /// this rank is no member.
  struct View {
    SetId id;
    const std::vector<int>& ranks;
    int own_place;
  };
  [[nodiscard]] View find_for_member(const ProcessSet& set, OperationType type,
                                     const std::string& name) const;

  /// Throws InvalidArgument, which begins with `what`, for a set that was removed or is another
  /// session's.
  void require_usable(const ProcessSet& set, const std::string& what,
                      const std::string& name) const;

  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_.ranks; }

  /// The handle of a set that all ranks have agreed on: the same for the same number.
  [[nodiscard]] ProcessSet add(SetId id, const std::vector<int>& ranks);
  void remove(SetId id);

 private:
  /// Empty if it is usable.
  [[nodiscard]] std::string why_unusable(const ProcessSet& set) const;

  std::uint64_t session_;
  int rank_;
  detail::ProcessSetData world_;
  std::mutex mutex_;
  std::map<SetId, std::shared_ptr<const detail::ProcessSetData>> sets_;
};

}  // namespace kolo::internal::session
