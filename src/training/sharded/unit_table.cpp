// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_table.hpp"

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
