// SPDX-License-Identifier: Apache-2.0
// Process sets: groups of ranks for collectives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

namespace detail {
struct KOLO_EXPORT ProcessSetData;
}

/// A set of ranks of one session, in ascending order. Members pass the set in the options of a
/// collective. Sets may overlap, and their operations run concurrently. The default is the world:
/// all ranks. Cheap to copy; thread-safe.
class KOLO_EXPORT ProcessSet {
 public:
  ProcessSet() noexcept = default;

  /// An identifier of the set, the same on all ranks; 0 for the world.
  [[nodiscard]] std::int64_t id() const noexcept;
  /// The members as world ranks, in ascending order. For the world, this function and the next
  /// three throw NotInitialized outside a session.
  [[nodiscard]] std::vector<int> ranks() const;
  /// The number of members.
  [[nodiscard]] int size() const;
  /// The index of this rank among the members; -1 if this rank is not a member.
  [[nodiscard]] int rank() const;
  /// True if the world rank `rank` is a member.
  [[nodiscard]] bool contains(int rank) const;

  friend bool operator==(const ProcessSet& a, const ProcessSet& b) noexcept {
    return a.data_ == b.data_;
  }

  /// For internal use; see `add_process_set`.
  explicit ProcessSet(std::shared_ptr<const detail::ProcessSetData> data) noexcept
      : data_(std::move(data)) {}
  [[nodiscard]] const std::shared_ptr<const detail::ProcessSetData>& data() const noexcept {
    return data_;
  }

 private:
  std::shared_ptr<const detail::ProcessSetData> data_;  // null: the world
};

/// All ranks.
[[nodiscard]] inline ProcessSet world() noexcept { return {}; }

/// Creates a set of these ranks. Collective in the world: every rank, member or not, calls it with
/// the same ranks, in any order. Equal ranks give the same set until it is removed; a set of all
/// ranks is distinct from the world. Each rank may add or remove one set at a time, on any thread.
///
/// Throws InvalidArgument for an empty list, a repeated rank, or a rank outside the world (nothing
/// was submitted), Mismatch if the lists differ between ranks, and the errors of collectives.
[[nodiscard]] KOLO_EXPORT ProcessSet add_process_set(std::span<const int> ranks);
[[nodiscard]] KOLO_EXPORT ProcessSet add_process_set(std::initializer_list<int> ranks);

/// Removes a set; collective in the world. Its pending operations fail with ShutDown on the ranks
/// that submitted them, and later operations in it throw InvalidArgument. Throws InvalidArgument
/// for the world and for a set that was already removed, and the errors of collectives.
KOLO_EXPORT void remove_process_set(const ProcessSet& set);

}  // namespace kolo
