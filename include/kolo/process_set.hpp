// Some of the ranks, as a place for collectives of their own.
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

/// A set of ranks of one session, ordered by their rank in the world. A cheap handle: copying it
/// copies a pointer. The default one is the world. Its members use it in the options of a
/// collective; sets may overlap, and their operations run side by side.
class KOLO_EXPORT ProcessSet {
 public:
  ProcessSet() noexcept = default;

  /// The world's number is 0. All ranks know a set by the same number.
  [[nodiscard]] std::int64_t id() const noexcept;
  /// The members, as ranks of the world, ascending. Throws NotInitialized for the world where there
  /// is no session; so do the next three.
  [[nodiscard]] std::vector<int> ranks() const;
  /// How many members there are.
  [[nodiscard]] int size() const;
  /// The place of this rank among the members; -1 if it is none.
  [[nodiscard]] int rank() const;
  /// True if the rank of the world is a member.
  [[nodiscard]] bool contains(int rank) const;

  friend bool operator==(const ProcessSet& a, const ProcessSet& b) noexcept {
    return a.data_ == b.data_;
  }

  /// Made by `add_process_set`.
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

/// Makes a set of these ranks. A collective of the world: every rank calls it, also those that will
/// not be members, with the same ranks in any order. The same ranks again give the same set, until
/// it is removed; all ranks give a set beside the world. One such call at a time on a rank, from
/// whichever thread.
///
/// Throws InvalidArgument for no rank, a rank twice, or a rank outside the world (nothing was
/// submitted), Mismatch if the ranks of the set differ between the callers, and else as the
/// collectives do.
[[nodiscard]] KOLO_EXPORT ProcessSet add_process_set(std::span<const int> ranks);
[[nodiscard]] KOLO_EXPORT ProcessSet add_process_set(std::initializer_list<int> ranks);

/// Removes a set: a collective of the world. What is pending in the set fails with ShutDown on the
/// ranks that submitted it; later use of it is InvalidArgument. Throws InvalidArgument for the
/// world and for a set that was removed already.
KOLO_EXPORT void remove_process_set(const ProcessSet& set);

}  // namespace kolo
