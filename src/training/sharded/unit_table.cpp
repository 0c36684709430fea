// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_table.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kolo::internal {

void UnitTable::add(ScheduledUnit unit) {
  order.add(unit.shape.contains_units);
  units_.push_back(std::move(unit));
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

void UnitTable::start_uses(std::size_t next, std::size_t count) {
  if (!order.is_agreed()) return;
  for (std::size_t i = next; i < std::min(next + count, order.uses()); ++i)
    start_gather(units_[order.used_at(i)]);
}

void UnitTable::start_turns(std::size_t next, std::size_t count) {
  std::size_t started = 0;
  for (std::size_t i = next; i < order.turns().size() && started < count; ++i) {
    const auto& [number, reduces] = order.turns()[i];
    ScheduledUnit& unit = units_[number];
    if (reduces || unit.is_gathered || unit.is_reduced) continue;
    start_gather(unit);
    ++started;
  }
}

// The other ranks may come to these units in any order, so all gathers start before the first wait.
void UnitTable::gather_unused() {
  for (ScheduledUnit& unit : units_)
    if (!order.is_noted(unit.index)) start_gather(unit);
  for (ScheduledUnit& unit : units_)
    if (!order.is_noted(unit.index)) make_whole(unit);
}

void UnitTable::free_all() noexcept {
  if (holders_ > 0) return;
  for (ScheduledUnit& unit : units_)
    if (unit.running == 0) unit.whole.free();
}

void UnitTable::end_pass() noexcept {
  uses_are_old_ = true;
  for (ScheduledUnit& unit : units_) {
    unit.is_used = unit.is_gathered = unit.is_complete = unit.is_reduced = unit.is_late = false;
    unit.reached = unit.computed = 0;
  }
  free_all();
}

void UnitTable::forget_old_uses() noexcept {
  if (!std::exchange(uses_are_old_, false)) return;
  for (ScheduledUnit& unit : units_) {
    unit.uses = unit.hidden = 0;
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
