// SPDX-License-Identifier: Apache-2.0
// The process sets of a session, and the check that a handle may be used.
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

/// The data behind the handles of a set. Only `removed` ever changes, so it alone is atomic.
struct ProcessSetData {
  std::uint64_t session;
  internal::SetId id;
  std::vector<int> ranks;  // ascending
  int own_place;           // this rank's index in `ranks`; -1 if it is no member
  mutable std::atomic<bool> removed{false};
};

}  // namespace kolo::detail

namespace kolo::internal::session {

/// Holds the sets that all ranks have agreed on, and checks handles against them. Thread-safe.
class ProcessSets {
 public:
  ProcessSets(std::uint64_t session, int rank, int size);

  /// A usable set that has this rank as a member.
  struct View {
    SetId id;
    const std::vector<int>& ranks;
    int own_place;
  };
  /// The set behind the handle. Throws InvalidArgument, which names the operation, if the set was
  /// removed, belongs to another session, or does not contain this rank.
  [[nodiscard]] View find_for_member(const ProcessSet& set, OperationType type,
                                     const std::string& name) const;

  /// Throws InvalidArgument, whose message begins with `what`, if the set was removed or belongs to
  /// another session.
  void require_usable(const ProcessSet& set, const std::string& what,
                      const std::string& name) const;

  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_.ranks; }

  /// The handle of a set that all ranks have agreed on. Handles with the same number share their
  /// data.
  [[nodiscard]] ProcessSet add(SetId id, const std::vector<int>& ranks);
  void remove(SetId id);

 private:
  /// Why the set cannot be used, in words that follow its name; empty if it can.
  [[nodiscard]] std::string why_unusable(const ProcessSet& set) const;

  std::uint64_t session_;
  int rank_;
  detail::ProcessSetData world_;
  std::mutex mutex_;
  std::map<SetId, std::shared_ptr<const detail::ProcessSetData>> sets_;
};

}  // namespace kolo::internal::session
