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
  int running = 0;               ///< Forwards of this unit that have begun and not ended.
  std::size_t after = 0;         ///< The place in the order after its last use in this forward.
  std::uint64_t checkpoint = 0;  ///< The checkpoint of its last use in forward, or 0.
  bool is_used = false;          ///< In a forward of this rank since the last pass.
  // On this rank since the last pass, or before it:
  int uses = 0;                 ///< Recorded.
  int hidden = 0;               ///< Uses in checkpoints, which backward will compute again.
  bool computes_again = false;  ///< Backward computes parts of a use again.
  // In this pass:
  int reached = 0;           ///< Recorded uses to which backward has come.
  int computed = 0;          ///< Hidden uses that were computed again.
  bool is_gathered = false;  ///< For backward; it may be freed again.
  bool is_complete = false;  ///< Backward has made its gradients on this rank.
  bool is_reduced = false;
  bool is_late = false;  ///< Has gradients that came after it was reduced.

  /// Whether backward may come to it again on this rank.
  [[nodiscard]] bool may_come() const { return reached < uses || computed < hidden; }
};

/// Owns the units, and gathers and frees them. `order` has their uses and turns.
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

  /// The beginning of the names of operations, which all ranks give alike.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  /// Frees all units and forgets their order.
  void begin_session(std::string prefix);
  void reset() noexcept;

  /// Begins the gather of a unit that is not there. Gathers in a pass have other names than those
  /// in forward.
  void start_gather(ScheduledUnit& unit);
  void make_whole(ScheduledUnit& unit);
  /// Begins the gathers of the next uses in forward, and of the next turns in backward. Does
  /// nothing before the agreement.
  void start_uses(std::size_t next, std::size_t count);
  void start_turns(std::size_t next, std::size_t count);
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
