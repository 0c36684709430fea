// SPDX-License-Identifier: Apache-2.0
// The units of a fully sharded model: where each one is in forward and backward, and whether it is
// whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "training/sharded/unit_memory.hpp"
#include "training/sharded/unit_order.hpp"
#include "training/sharded/whole_unit.hpp"

namespace kolo::internal {

/// The properties of a unit that do not change.
struct UnitShape {
  bool contains_units = false;
  bool has_frozen = false;  ///< Some parameters are not trained.
  std::size_t trained = 0;  ///< The number of trained parameters.
};

struct ScheduledUnit {
  std::size_t index;
  std::string name;
  UnitShape shape;
  UnitMemory* memory;
  WholeUnit whole;
  bool comes_late = false;      ///< Backward comes to a unit before it while this one is to come.
  int running = 0;              ///< Forwards of this unit that have begun and not ended.
  bool is_used = false;         ///< In a forward of this rank since the last pass.
  int uses = 0;                 ///< Recorded on this rank since the last pass, or before it.
  bool computes_again = false;  ///< Backward computes parts of a use again.
  int reached = 0;              ///< Uses to which backward has come in this pass.
  bool is_reduced = false;      ///< In this pass.
  bool is_late = false;         ///< Has gradients to reduce at the end of the pass.
};

/// Owns the units, and gathers and frees them. `order` is that in which forward comes to them; a
/// position is a place in it.
///
/// Not thread-safe.
class UnitTable {
 public:
  UnitTable(std::string prefix, bool order_is_known)
      : order(order_is_known), prefix_(std::move(prefix)) {}

  void add(ScheduledUnit unit);
  [[nodiscard]] std::size_t size() const { return units_.size(); }
  [[nodiscard]] auto begin() { return units_.begin(); }
  [[nodiscard]] auto end() { return units_.end(); }
  [[nodiscard]] ScheduledUnit& at(std::size_t index) { return units_.at(index); }
  [[nodiscard]] const ScheduledUnit& at(std::size_t index) const { return units_.at(index); }
  [[nodiscard]] ScheduledUnit& at_position(std::size_t position) {
    return units_[order.unit_at(position)];
  }
  [[nodiscard]] std::size_t position_of(const ScheduledUnit& unit) const {
    return order.position_of(unit.index);
  }

  /// Calls the function for the units with later positions, the last one first. None of them
  /// contains units. Does nothing for a unit that does, and before the agreement.
  template <typename Function>
  void for_each_after(const ScheduledUnit& unit, const Function& function) {
    if (unit.shape.contains_units || !order.is_agreed()) return;
    for (std::size_t i = order.size(); i-- > position_of(unit) + 1;)
      if (ScheduledUnit& other = at_position(i); !other.shape.contains_units) function(other);
  }

  /// The beginning of the names of operations, which all ranks give alike.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  /// Frees all units and forgets their order.
  void begin_session(std::string prefix);
  void reset() noexcept;

  /// Begins the gather of a unit that is not there. Gathers in a pass have other names than those
  /// in forward.
  void start_gather(ScheduledUnit& unit);
  void make_whole(ScheduledUnit& unit);
  /// Collective. Takes the uses that one rank has noted in the first forward.
  void agree_on_order(const ShardingSets& sets);
  /// Gathers the units that the first forward has not used.
  void gather_unused();
  void set_in_pass(bool in_pass) { in_pass_ = in_pass; }
  /// Frees the units that no forward is using, unless all are held.
  void free_all() noexcept;
  /// Forgets what has happened to the units in the pass, and frees them. Backward may come to the
  /// same uses in several passes, until there are new ones.
  void end_pass() noexcept;
  /// Forgets the uses that were recorded before the last pass.
  void forget_old_uses() noexcept;

  /// Gathers all units, and keeps them until `release`, which does nothing in another session than
  /// the one whose number is returned. Calls may nest.
  [[nodiscard]] std::int64_t hold_all();
  void release(std::int64_t session) noexcept {
    if (session == session_) --holders_;
  }
  [[nodiscard]] bool holds_all() const { return holders_ > 0; }

  [[nodiscard]] std::int64_t gathers() const { return gathers_; }
  /// Gathers that were not done when they were needed.
  [[nodiscard]] std::int64_t late_gathers() const { return late_gathers_; }

  UnitOrder order;

 private:
  std::string prefix_;
  std::vector<ScheduledUnit> units_{};
  bool in_pass_ = false;
  bool uses_are_old_ = false;
  int holders_ = 0;  // calls of `hold_all`
  std::int64_t session_ = 0;
  std::int64_t gathers_ = 0;
  std::int64_t late_gathers_ = 0;
};

}  // namespace kolo::internal
