// SPDX-License-Identifier: Apache-2.0
// When the units of a fully sharded model are gathered, freed and reduced; knows no framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/types.hpp"
#include "training/first_error.hpp"
#include "training/sharded/unit_memory.hpp"
#include "training/sharded/unit_pass_summary.hpp"
#include "training/sharded/unit_reductions.hpp"
#include "training/sharded/unit_table.hpp"

namespace kolo::internal {

/// The options of a UnitSchedule, which are equal on all ranks.
struct UnitScheduleOptions {
  std::string subject = "FullySharded";  ///< The class of the public face, which begins messages.
  ReduceOp op = ReduceOp::average;
  Compression compression = Compression::none;
  bool reshard_after_forward = true;
  int units_ahead = 1;
  ShardingSets sets{};
  bool order_is_known = false;  ///< Forward comes to the units in the order of registration.
};

/// Gathers each unit before it is used and frees it afterwards, and reduces its gradients.
///
/// A unit is gathered in forward, and again in backward unless it was kept; each gather needs all
/// ranks. So all ranks go through the units in one order: a known one, or that of the first forward
/// of the set's first rank, which may use units several times. A rank that leaves a use out takes
/// part with its shards and with zeros when it comes to a later one, or to the end of the forward
/// or the pass. A use that is not in the order must be made on all ranks. Whether a unit is kept
/// between forward and backward depends only on what is equal on all ranks.
///
/// A pass ends with a summary: whether backward has failed on any rank, which parameters any rank
/// has used, and which units have gradients that came after the unit was reduced. These are reduced
/// then.
///
/// Not thread-safe. A forward or pass that throws because of another rank leaves the schedule
/// usable.
class UnitSchedule {
 public:
  /// The root unit, which contains the others. Its forward is that of the model.
  static constexpr std::size_t root = 0;

  KOLO_EXPORT UnitSchedule(std::string prefix, UnitScheduleOptions options);
  KOLO_EXPORT ~UnitSchedule();
  UnitSchedule(const UnitSchedule&) = delete;
  UnitSchedule& operator=(const UnitSchedule&) = delete;

  /// Adds a unit; the root first. `memory` must outlive this object.
  KOLO_EXPORT void add(const std::string& name, const UnitShape& shape, UnitMemory& memory);
  /// If false, passes leave their gradients where they are.
  void set_reducing(bool reducing) { reduces_next_ = reducing; }

  /// A use of the unit in forward begins and ends. If the first throws, there is no use.
  /// `recording`: backward may follow. `threw`: the forward has thrown, and the exception is on its
  /// way. A use during a pass belongs to backward, as with activation checkpointing.
  /// `checkpoint`: not 0 if backward will compute the use again, and then equal for the uses that
  /// it computes together.
  KOLO_EXPORT void enter(std::size_t unit, bool recording, std::uint64_t checkpoint = 0);
  KOLO_EXPORT void leave(std::size_t unit, bool threw);

  /// Results of a use of the unit have become part of the graph. `computes_again`: backward will
  /// compute parts of the use again.
  void note_recorded(std::size_t index, bool computes_again = false) {
    ++units_.at(index).uses;
    units_.at(index).computes_again |= computes_again;
  }
  /// Backward comes to results of the unit, which were computed when its memory had this `stamp`.
  /// `is_first`: of this use. Throws Error if the parameters have changed since. Begins a pass.
  KOLO_EXPORT void enter_backward(std::size_t unit, std::size_t stamp, bool is_first);
  KOLO_EXPORT void require_unchanged(std::size_t unit, std::size_t stamp) const;
  /// The gradients of the unit are complete, and `UnitMemory::take_gradients` has them. Begins a
  /// pass.
  KOLO_EXPORT void gradients_complete(std::size_t unit);

  /// True from the first part of backward to the end of the pass.
  [[nodiscard]] bool in_pass() const { return in_pass_; }
  KOLO_EXPORT void begin_pass();
  /// Ends the pass. Throws BackwardFailed if backward has thrown on another rank.
  KOLO_EXPORT void end_pass();
  /// Backward has thrown on this rank. Begins a pass if none has begun, and takes part in what the
  /// other ranks do before its end. The call of `end_failed_pass` that must follow waits for that.
  KOLO_EXPORT void fail_pass() noexcept;
  KOLO_EXPORT void end_failed_pass() noexcept;

  /// Takes part in a forward of the other ranks and in its backward with zeros, or in the rest if
  /// forward has thrown on this rank; then that pass fails.
  KOLO_EXPORT void take_part(bool reducing);
  /// The same after a forward.
  KOLO_EXPORT void take_part_in_backward(bool reducing);

  /// Gathers all units as they are now, and keeps them until `release_all`, which takes the number
  /// that is returned. Calls may nest.
  [[nodiscard]] KOLO_EXPORT std::int64_t gather_all();
  KOLO_EXPORT void release_all(std::int64_t session) noexcept;
  [[nodiscard]] bool holds_all() const { return units_.holds_all(); }
  /// Gathers a unit if it is not there, outside of forward and backward. The next forward frees it.
  KOLO_EXPORT void gather(std::size_t unit);

  /// A new session has begun, whose ranks name their operations so. Forgets what the old one has
  /// left: pending operations, the pass, and the order.
  KOLO_EXPORT void begin_session(const std::string& prefix);

  /// Counts for tests and measurements, since construction.
  struct Counters {
    std::int64_t gathers = 0;
    std::int64_t reductions = 0;
    std::int64_t late_gathers = 0;  ///< Gathers that were not done when they were needed.
  };
  [[nodiscard]] Counters counters() const {
    return {units_.gathers(), reductions_.started(), units_.late_gathers()};
  }

 private:
  using Unit = ScheduledUnit;
  [[nodiscard]] UnitOrder& order() { return units_.order; }
  [[nodiscard]] const UnitOrder& order() const { return units_.order; }
  void reset() noexcept;
  void enter_again(Unit& unit, std::uint64_t checkpoint);
  void begin_forward(bool recording);
  void break_forward() noexcept;
  void end_forward();
  void end_broken_forward();
  void fail_broken_forward();
  void pass_over_until(std::size_t use);
  void free_in_forward(Unit& unit) noexcept;
  [[nodiscard]] bool stays_for_backward(const Unit& unit) const;
  [[nodiscard]] std::size_t units_ahead() const {
    return static_cast<std::size_t>(options_.units_ahead);
  }

  void complete(Unit& unit);
  void gather_in_turn(Unit& unit, const std::function<bool(const Unit&)>& comes);
  void take_turns(std::size_t end, const std::function<bool(const Unit&)>& comes);
  void free_in_backward(Unit& unit) noexcept;
  void reduce(std::size_t unit, const char* round);
  void complete_pass() noexcept;
  void mark_failed() noexcept;
  [[nodiscard]] UnitPassSummary agree_on_summary();
  void reduce_late(const UnitPassSummary& summary);
  void leave_pass() noexcept;

  UnitScheduleOptions options_;
  UnitTable units_;

  bool in_forward_ = false;  // of the root
  bool recording_ = false;   // this forward, or the last one
  bool is_broken_ = false;   // the last forward has thrown
  std::size_t next_ = 0;     // the first use to which this forward has not come
  int forwards_ = 0;         // that have recorded since the last pass

  bool reduces_next_ = true;
  bool in_pass_ = false;
  bool reducing_ = false;
  bool failed_ = false;       // forward or backward has thrown on this rank
  bool is_complete_ = false;  // this rank has taken part in all but the end of the pass
  FirstError completion_{};   // the error of that
  std::int64_t passes_ = 0;   // that have ended
  UnitReductions reductions_{};
};

}  // namespace kolo::internal
