// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_table.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kolo::internal {

void UnitTable::add(ScheduledUnit unit) {
  units_.push_back(std::move(unit));
  order.add();
}

void UnitTable::begin_session(std::string prefix) {
  reset();
  prefix_ = std::move(prefix);
}

void UnitTable::reset() noexcept {
  holders_ = 0;
  ++session_;
  for (ScheduledUnit& unit : units_) {
    unit.whole.free();
    unit.running = 0;
    unit.comes_late = false;
  }
  uses_are_old_ = true;
  forget_old_uses();
  order.reset();
}

void UnitTable::start_gather(ScheduledUnit& unit) {
  if (unit.whole.start(prefix_ + unit.name + (in_pass_ ? ".again" : ".gather"))) ++gathers_;
}

void UnitTable::make_whole(ScheduledUnit& unit) {
  start_gather(unit);
  if (unit.whole.finish()) ++late_gathers_;
}

// The other ranks may come to these units in any order, so all gathers start before the first wait.
void UnitTable::gather_unused() {
  for (ScheduledUnit& unit : units_)
    if (!order.is_noted(unit.index)) start_gather(unit);
  for (ScheduledUnit& unit : units_)
    if (!order.is_noted(unit.index)) make_whole(unit);
}

// The ranks reduce in the order of positions, so a unit that is to come is not reduced when
// backward comes to one before it. It would be on a rank that leaves those uses out.
void UnitTable::agree_on_order(const ShardingSets& sets) {
  order.agree(prefix_ + "order", sets);
  std::size_t first_after = size();  // the lowest position of the uses after this one
  for (std::size_t use = order.uses(); use-- > 0;) {
    ScheduledUnit& unit = units_[order.used_at(use)];
    if (unit.shape.contains_units) continue;
    unit.comes_late = first_after < position_of(unit);  // in the end, that of its first use
    first_after = std::min(first_after, position_of(unit));
  }
}

void UnitTable::free_all() noexcept {
  if (holders_ > 0) return;
  for (ScheduledUnit& unit : units_)
    if (unit.running == 0) unit.whole.free();
}

void UnitTable::end_pass() noexcept {
  uses_are_old_ = true;
  for (ScheduledUnit& unit : units_) {
    unit.is_used = unit.is_reduced = unit.is_late = false;
    unit.reached = 0;
  }
  free_all();
}

void UnitTable::forget_old_uses() noexcept {
  if (!std::exchange(uses_are_old_, false)) return;
  for (ScheduledUnit& unit : units_) {
    unit.uses = 0;
    unit.computes_again = false;
  }
}

// A step may have changed the shards without a new version.
std::int64_t UnitTable::hold_all() {
  free_all();
  for (ScheduledUnit& unit : units_) start_gather(unit);
  for (ScheduledUnit& unit : units_) make_whole(unit);
  ++holders_;
  return session_;
}

}  // namespace kolo::internal
