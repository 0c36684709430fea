// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {

UnitSchedule::UnitSchedule(std::string prefix, UnitScheduleOptions options)
    : options_(std::move(options)), units_(std::move(prefix), options_.order_is_known) {}

UnitSchedule::~UnitSchedule() { reset(); }

void UnitSchedule::begin_session(const std::string& prefix) {
  reset();
  units_.begin_session(prefix);
}

void UnitSchedule::reset() noexcept {
  leave_pass();
  units_.reset();
  in_forward_ = false;
  is_broken_ = false;
  passes_ = 0;
}

void UnitSchedule::gather(std::size_t unit) { units_.make_whole(units_.at(unit)); }

std::int64_t UnitSchedule::gather_all() { return units_.hold_all(); }

void UnitSchedule::release_all(std::int64_t session) noexcept {
  units_.release(session);
  if (!in_pass_ && forwards_ == 0) units_.free_all();
}

void UnitSchedule::add(const std::string& name, const UnitShape& shape, UnitMemory& memory) {
  units_.add({.index = units_.size(),
              .name = name,
              .shape = {.contains_units = shape.contains_units || units_.size() == root,
                        .has_frozen = shape.has_frozen,
                        .trained = shape.trained},
              .memory = &memory,
              .whole = WholeUnit(memory, options_.sets.shards, options_.subject)});
}

// ---- Forward

void UnitSchedule::enter(std::size_t index, bool recording, std::uint64_t checkpoint) {
  Unit& unit = units_.at(index);
  if (in_pass_) return enter_again(unit, checkpoint);
  recording = recording || checkpoint != 0;
  if (recording) units_.forget_old_uses();
  if (holds_all()) {  // all parameters are whole, and each rank may do what it likes
    if (recording)
      throw InvalidArgument(
          options_.subject +
          ": no training while all parameters are held whole. Evaluate without gradients, as with "
          "torch::NoGradGuard");
    ++unit.running;
    return;
  }
  const bool is_model = index == root && unit.running == 0;
  if (is_model) begin_forward(recording);
  try {
    if (!in_forward_ && unit.running == 0) unit.whole.free();  // a step may have changed the shards
    const auto use = order().find_use(index, next_);
    const bool is_expected = in_forward_ && order().is_agreed() && use;
    if (is_expected) pass_over_until(*use);
    units_.make_whole(unit);
    if (in_forward_) {
      unit.is_used = true;
      if (checkpoint != 0) ++unit.hidden;
      unit.checkpoint = checkpoint;
      order().note_use(index);
      if (is_expected) next_ = *use + 1;
      unit.after = next_;
      units_.start_uses(next_, units_ahead());
    }
  } catch (...) {
    free_in_forward(unit);
    if (is_model) break_forward();
    throw;
  }
  ++unit.running;
}

// Forward is computed again in backward, in another checkpoint if these are nested. Units of the
// same checkpoint will make their gradients by themselves.
void UnitSchedule::enter_again(Unit& unit, std::uint64_t checkpoint) {
  if (unit.running == 0) {
    gather_in_turn(unit, [&unit](const Unit& other) {
      return other.is_used && other.checkpoint == unit.checkpoint;
    });
    if (checkpoint == 0) ++unit.computed;
  } else {
    units_.make_whole(unit);
  }
  ++unit.running;
}

void UnitSchedule::leave(std::size_t index, bool threw) {
  Unit& unit = units_.at(index);
  --unit.running;
  if (in_pass_ || holds_all()) return;
  if (index == root && unit.running == 0 && in_forward_) {
    if (threw) return break_forward();
    end_forward();
  }
  free_in_forward(unit);
}

void UnitSchedule::begin_forward(bool recording) {
  if (is_broken_) fail_broken_forward();
  if (recording) units_.forget_old_uses();
  // A step may have changed the shards without a new version, so nothing stays from an earlier
  // forward. Its backward gathers again.
  units_.free_all();
  in_forward_ = true;
  recording_ = recording;
  next_ = 0;
}

void UnitSchedule::break_forward() noexcept {
  in_forward_ = false;
  is_broken_ = true;
}

void UnitSchedule::end_forward() {
  try {
    if (order().is_agreed()) {
      pass_over_until(order().uses());
    } else {
      units_.gather_unused();
      for (Unit& unit : units_) free_in_forward(unit);
      order().agree(units_.prefix() + "order", options_.sets);
    }
  } catch (...) {
    break_forward();
    throw;
  }
  in_forward_ = false;
  if (recording_) ++forwards_;
}

// The other ranks complete the forward that has thrown on this rank.
void UnitSchedule::end_broken_forward() {
  is_broken_ = false;
  in_forward_ = true;
  end_forward();
}

// Their backward is to fail.
void UnitSchedule::fail_broken_forward() {
  end_broken_forward();
  if (!recording_) return;
  fail_pass();
  end_failed_pass();
}

void UnitSchedule::pass_over_until(std::size_t use) {
  while (next_ < use) {
    Unit& unit = units_.at(order().used_at(next_));
    units_.make_whole(unit);
    unit.after = ++next_;
    free_in_forward(unit);
    units_.start_uses(next_, units_ahead());
  }
}

// Keeps a unit that this rank is using, or needs next or in backward.
void UnitSchedule::free_in_forward(Unit& unit) noexcept {
  if (unit.running > 0 || stays_for_backward(unit)) return;
  const bool is_next =
      in_forward_ && order().is_agreed() && order().is_among(unit.index, unit.after, units_ahead());
  if (!is_next) unit.whole.free();
}

// The answer is the same on all ranks, whether they use the unit or pass it over.
bool UnitSchedule::stays_for_backward(const Unit& unit) const {
  if (holds_all()) return true;
  if (!in_forward_ && forwards_ == 0) return false;  // a unit that was called by itself
  const auto& turns = order().turns();
  const bool is_last = !turns.empty() && turns.front().unit == unit.index;
  return recording_ && (!options_.reshard_after_forward || unit.shape.contains_units || is_last);
}

// ---- Backward

void UnitSchedule::begin_pass() {
  if (in_pass_) return;
  const bool was_broken = is_broken_;
  if (was_broken) end_broken_forward();
  in_pass_ = true;
  units_.set_in_pass(true);
  reducing_ = reduces_next_;
  if (was_broken && recording_) mark_failed();
  // All ranks need these until the end, whether or not this rank comes to them. They are there,
  // unless something after forward has freed them.
  for (Unit& unit : units_)
    if (unit.shape.contains_units && order().is_agreed()) units_.start_gather(unit);
}

void UnitSchedule::enter_backward(std::size_t index, std::size_t stamp, bool is_first) {
  begin_pass();
  Unit& unit = units_.at(index);
  require_unchanged(index, stamp);
  if (is_first) ++unit.reached;
  if (unit.is_reduced) return;  // what follows needs no parameters, or they have stayed
  gather_in_turn(unit, [this](const Unit& other) { return forwards_ > 1 && other.may_come(); });
}

void UnitSchedule::require_unchanged(std::size_t index, std::size_t stamp) const {
  const Unit& unit = units_.at(index);
  if (unit.memory->stamp() == stamp) return;
  throw Error(fmt::format("{}: the parameters of '{}' were changed between forward and backward. "
                          "Step after backward",
                          options_.subject, unit.name),
              unit.name);
}

// Reduces what has its turn. The rest follows later, at the latest at the end of the pass.
void UnitSchedule::gradients_complete(std::size_t index) {
  begin_pass();
  Unit& unit = units_.at(index);
  if (unit.is_reduced) {
    unit.is_late = true;
    return;
  }
  unit.is_complete = true;
  if (unit.shape.contains_units || !order().is_agreed()) return complete(unit);
  free_in_backward(unit);
  for (const auto& [number, reduces] : order().turns()) {
    Unit& next = units_.at(number);
    if (next.is_reduced) continue;
    if (reduces ? !next.is_complete : !next.is_gathered) return;
    if (reduces) complete(next);
  }
}

void UnitSchedule::complete(Unit& unit) {
  if (reducing_) return reduce(unit.index, ".reduce");
  unit.is_reduced = true;
  free_in_backward(unit);
}

// Makes a unit whole, after the turns before its own.
void UnitSchedule::gather_in_turn(Unit& unit, const std::function<bool(const Unit&)>& comes) {
  const std::size_t turn = order().turn_of(unit.index);
  const bool has_turn = turn < order().turns().size();
  if (has_turn) take_turns(turn, comes);
  units_.make_whole(unit);
  unit.is_gathered = true;
  if (has_turn) units_.start_turns(turn + 1, units_ahead());
}

// Units without gradients on this rank are reduced with zeros, unless `comes` says that they will
// have some. Gradients that come nevertheless are late.
void UnitSchedule::take_turns(std::size_t end, const std::function<bool(const Unit&)>& comes) {
  for (std::size_t i = 0; i < end; ++i) {
    const auto& [number, reduces] = order().turns()[i];
    Unit& unit = units_.at(number);
    if (unit.is_reduced) continue;
    if (reduces) {
      if (unit.is_complete || !comes(unit)) complete(unit);
    } else if (!unit.is_gathered) {
      units_.make_whole(unit);
      unit.is_gathered = true;
      units_.start_turns(i + 1, units_ahead());
    }
  }
}

// All nodes that need a trained parameter also lead to its gradient, so they have run. Those that
// need a frozen one may still run, as may those of a unit that was passed over, and what backward
// computes again.
void UnitSchedule::free_in_backward(Unit& unit) noexcept {
  const bool may_come = unit.shape.has_frozen || unit.computes_again || unit.may_come();
  const bool is_needed =
      unit.shape.contains_units || unit.running > 0 || (may_come && !is_complete_);
  if (!is_needed && !holds_all()) unit.whole.free();
}

void UnitSchedule::reduce(std::size_t index, const char* round) {
  Unit& unit = units_.at(index);
  std::unique_ptr<UnitGradients> gradients = unit.memory->take_gradients();
  unit.is_reduced = true;  // not before: if there was no memory, the end of the pass tries again
  free_in_backward(unit);
  // Ranks reduce units that contain others at different times, so nobody waits for those before the
  // end of the pass.
  reductions_.start(std::move(gradients),
                    {.name = units_.prefix() + unit.name + round,
                     .op = options_.op,
                     .compression = options_.compression,
                     .process_set = options_.sets.shards},
                    passes_, /*in_order=*/!unit.shape.contains_units, options_.sets.replicas);
}

void UnitSchedule::mark_failed() noexcept {
  failed_ = true;
  reductions_.drop_results();
}

void UnitSchedule::fail_pass() noexcept {
  FirstError ignored;
  ignored.attempt([this] { begin_pass(); });
  mark_failed();
  if (in_pass_) complete_pass();
}

void UnitSchedule::end_failed_pass() noexcept {
  FirstError ignored;
  if (failed_ && is_complete_) ignored.attempt([this] { end_pass(); });
}

void UnitSchedule::take_part(bool reducing) {
  if (in_forward_ || in_pass_)
    throw InvalidArgument(options_.subject + ": take_part() inside of forward or backward");
  if (!is_broken_) {
    begin_forward(/*recording=*/true);
    end_forward();
  }
  take_part_in_backward(reducing);
}

void UnitSchedule::take_part_in_backward(bool reducing) {
  if (in_forward_ || in_pass_)
    throw InvalidArgument(options_.subject +
                          ": take_part_in_backward() inside of forward or backward");
  if (!is_broken_) reduces_next_ = reducing;
  begin_pass();
  end_pass();
}

// Takes part for the units to which backward has not come on this rank.
void UnitSchedule::complete_pass() noexcept {
  if (std::exchange(is_complete_, true)) return;
  completion_.attempt([&] {
    take_turns(order().turns().size(), [](const Unit& /*unit*/) { return false; });
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (!units_.at(i).is_reduced && order().is_agreed()) gradients_complete(i);
  });
}

void UnitSchedule::end_pass() {
  complete_pass();
  FirstError error = std::exchange(completion_, {});
  // A rank that cannot take part, such as for lack of memory, must not wait here for the others:
  // they wait for it. They learn of the failure when this rank leaves the session.
  if (!error) {
    error.attempt([&] { reductions_.land(); });
    if (error) mark_failed();
    error.attempt([&] {
      const UnitPassSummary summary = agree_on_summary();
      if (reducing_) reduce_late(summary);
    });
  }
  if (error)
    for (const Unit& unit : units_) unit.memory->fail_pass();
  leave_pass();
  error.rethrow();
}

UnitPassSummary UnitSchedule::agree_on_summary() {
  UnitPassSummary summary{.has_failed = failed_};
  for (const Unit& unit : units_) {
    summary.late.push_back(unit.is_late ? 1 : 0);
    summary.used.push_back(reducing_ ? unit.memory->take_used()
                                     : std::vector<std::int32_t>(unit.shape.trained));
  }
  summary.agree(options_.subject, units_.prefix(), options_.sets, passes_);
  return summary;
}

void UnitSchedule::reduce_late(const UnitPassSummary& summary) {
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (summary.late[i] != 0) reduce(i, ".late");
  reductions_.land();
  for (std::size_t i = 0; i < units_.size(); ++i) units_.at(i).memory->end_pass(summary.used[i]);
}

void UnitSchedule::leave_pass() noexcept {
  reductions_.clear();
  if (in_pass_) ++passes_;
  in_pass_ = false;
  units_.set_in_pass(false);
  failed_ = false;
  is_complete_ = false;
  completion_.clear();
  forwards_ = 0;
  units_.end_pass();
}

}  // namespace kolo::internal
