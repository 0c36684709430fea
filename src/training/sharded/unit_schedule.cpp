// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"

namespace kolo::internal {

UnitSchedule::UnitSchedule(std::string prefix, UnitScheduleOptions options)
    : prefix_(std::move(prefix)), options_(std::move(options)) {}

UnitSchedule::~UnitSchedule() { reset(); }

void UnitSchedule::add(const std::string& name, const UnitShape& shape, UnitMemory& memory) {
  units_.push_back({.name = name,
                    .shape = shape,
                    .memory = &memory,
                    .whole = WholeUnit(memory, options_.process_set),
                    .position = units_.size()});
  order_.push_back(units_.size() - 1);
}

// ---- Memory

void UnitSchedule::start_gather(Unit& unit) {
  if (unit.whole.start(prefix_ + unit.name + (in_pass_ ? ".again" : ".gather")))
    ++counters_.gathers;
}

void UnitSchedule::make_whole(Unit& unit) {
  start_gather(unit);
  if (unit.whole.finish()) ++counters_.late_gathers;
}

void UnitSchedule::free_all() noexcept {
  if (holders_ > 0) return;
  for (Unit& unit : units_)
    if (unit.running == 0) unit.whole.free();
}

void UnitSchedule::gather(std::size_t unit) { make_whole(units_.at(unit)); }

void UnitSchedule::release(std::size_t unit) noexcept {
  if (holders_ == 0 && !in_pass_ && forwards_ == 0 && units_[unit].running == 0)
    units_[unit].whole.free();
}

void UnitSchedule::gather_all() {
  for (Unit& unit : units_) start_gather(unit);
  for (Unit& unit : units_) make_whole(unit);
  ++holders_;
}

void UnitSchedule::release_all() noexcept {
  --holders_;
  if (!in_pass_ && forwards_ == 0) free_all();
}

void UnitSchedule::reset() noexcept {
  for (Unit& unit : units_) {
    unit.whole.free();
    unit.running = 0;
  }
  leave_pass();
  in_forward_ = false;
  is_broken_ = false;
  holders_ = 0;
  passes_ = 0;
  is_order_agreed_ = false;
  seen_.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) order_[i] = units_[i].position = i;
}

// ---- Forward

void UnitSchedule::enter(std::size_t index, bool recording) {
  Unit& unit = units_.at(index);
  if (in_pass_) {  // computed again, with gradients
    unit.is_reached = true;
    if (unit.running == 0 && !unit.shape.contains_units) {
      pass_over_backward_until(unit.position, /*all=*/false);
      make_whole(unit);
      gather_ahead_in_backward(unit.position);
    } else {
      make_whole(unit);
    }
    ++unit.running;
    return;
  }
  if (index == root && unit.running == 0) begin_forward(recording);
  if (in_forward_) {
    note_first_use(index);
    unit.is_used = true;
    if (is_order_agreed_) pass_over_until(unit.position);
    next_ = std::max(next_, unit.position + 1);
  }
  make_whole(unit);
  ++unit.running;
  if (in_forward_) gather_ahead();
}

void UnitSchedule::leave(std::size_t index, bool threw) {
  Unit& unit = units_.at(index);
  --unit.running;
  if (in_pass_) return;  // its backward follows
  if (index == root && unit.running == 0 && in_forward_) {
    if (threw) {
      in_forward_ = false;
      is_broken_ = true;
      return;
    }
    end_forward();
  }
  if (unit.running == 0 && holders_ == 0 && !stays_for_backward(unit)) unit.whole.free();
}

void UnitSchedule::begin_forward(bool recording) {
  if (is_broken_) fail_broken_forward();
  // A step may have changed the shards without a new version, so nothing stays from an earlier
  // forward. Its backward gathers again.
  free_all();
  in_forward_ = true;
  recording_ = recording;
  next_ = 0;
}

void UnitSchedule::end_forward() {
  if (is_order_agreed_) {
    pass_over_until(order_.size());
  } else {
    for (Unit& unit : units_)
      if (std::ranges::find(seen_, static_cast<std::size_t>(&unit - units_.data())) == seen_.end())
        pass_over(unit);
    agree_on_order();
  }
  in_forward_ = false;
  if (recording_) ++forwards_;
}

// The other ranks complete the forward that has thrown on this rank, and its backward. Their
// backward is to fail.
void UnitSchedule::fail_broken_forward() {
  is_broken_ = false;
  in_forward_ = true;
  end_forward();
  if (recording_) fail_pass();
}

void UnitSchedule::note_first_use(std::size_t unit) {
  if (!is_order_agreed_ && std::ranges::find(seen_, unit) == seen_.end()) seen_.push_back(unit);
}

void UnitSchedule::agree_on_order() {
  std::vector<std::int32_t> order(seen_.begin(), seen_.end());
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (std::ranges::find(seen_, i) == seen_.end()) order.push_back(static_cast<std::int32_t>(i));
  broadcast(TensorView(order), options_.process_set.ranks().front(),
            {.name = prefix_ + "order", .process_set = options_.process_set});
  order_.assign(order.begin(), order.end());
  for (std::size_t i = 0; i < order_.size(); ++i) units_.at(order_[i]).position = i;
  is_order_agreed_ = true;
}

void UnitSchedule::pass_over(Unit& unit) {
  make_whole(unit);
  if (is_order_agreed_) gather_ahead();
  if (unit.running == 0 && holders_ == 0 && !stays_for_backward(unit)) unit.whole.free();
}

void UnitSchedule::pass_over_until(std::size_t position) {
  while (next_ < position) pass_over(units_[order_[next_++]]);
}

// The answer is the same on all ranks, whether they use the unit or pass it over.
bool UnitSchedule::stays_for_backward(const Unit& unit) const {
  if (!in_forward_ && forwards_ == 0) return false;  // a unit that was called by itself
  const bool is_last = is_order_agreed_ && unit.position + 1 == order_.size();
  return recording_ && (!options_.reshard_after_forward || unit.shape.contains_units || is_last);
}

void UnitSchedule::gather_ahead() {
  if (!is_order_agreed_) return;
  const auto ahead = static_cast<std::size_t>(options_.units_ahead);
  for (std::size_t i = next_; i < std::min(next_ + ahead, order_.size()); ++i)
    start_gather(units_[order_[i]]);
}

// ---- Backward

void UnitSchedule::begin_pass() {
  if (in_pass_) return;
  in_pass_ = true;
  reducing_ = reduces_next_;
}

void UnitSchedule::enter_backward(std::size_t index, std::size_t stamp) {
  begin_pass();
  Unit& unit = units_.at(index);
  if (unit.memory->stamp() != stamp)
    throw Error(fmt::format("FullySharded: the parameters of '{}' were changed between forward and "
                            "backward. Step after backward",
                            unit.name),
                unit.name);
  unit.is_reached = true;
  if (!unit.shape.contains_units) pass_over_backward_until(unit.position, /*all=*/true);
  make_whole(unit);
  if (!unit.shape.contains_units) gather_ahead_in_backward(unit.position);
}

void UnitSchedule::gradients_complete(std::size_t index) {
  begin_pass();
  Unit& unit = units_.at(index);
  if (unit.is_reduced) {
    unit.is_late = true;
  } else if (reducing_) {
    reduce(index, ".reduce");
  } else {
    unit.is_reduced = true;
    if (!unit.shape.contains_units && !unit.shape.has_frozen && unit.running == 0 && holders_ == 0)
      unit.whole.free();
  }
}

// Passes over the units to which backward has not come on this rank. Those that this rank has used
// may still come if a later unit is only computed again (`all` is false).
void UnitSchedule::pass_over_backward_until(std::size_t position, bool all) {
  if (!is_order_agreed_) return;
  for (std::size_t i = order_.size(); i-- > position + 1;) {
    Unit& unit = units_[order_[i]];
    if (unit.shape.contains_units || unit.is_reached || unit.is_reduced) continue;
    if (!all && unit.is_used) continue;
    make_whole(unit);
    gather_ahead_in_backward(i);
    gradients_complete(order_[i]);
  }
}

void UnitSchedule::gather_ahead_in_backward(std::size_t position) {
  if (!is_order_agreed_) return;
  int started = 0;
  for (std::size_t i = position; i-- > 0 && started < options_.units_ahead;) {
    Unit& unit = units_[order_[i]];
    if (unit.shape.contains_units || unit.is_reduced) continue;
    start_gather(unit);
    ++started;
  }
}

void UnitSchedule::reduce(std::size_t index, const char* round) {
  Unit& unit = units_[index];
  unit.is_reduced = true;
  Reduction reduction{.unit = index, .gradients = unit.memory->take_gradients(), .future = {}};
  // A node that needs a frozen parameter may still run; all others lead to the gradients.
  if (!unit.shape.contains_units && !unit.shape.has_frozen && unit.running == 0 && holders_ == 0)
    unit.whole.free();
  if (unit.shape.trained == 0) return;
  land_reductions(/*of_containers=*/false);  // so one reduction is in flight at a time
  const std::vector<ConstTensorView> whole = reduction.gradients->whole();
  const std::vector<TensorView> shards = reduction.gradients->shards();
  const ReducescatterOptions options{.name = prefix_ + unit.name + round,
                                     .op = options_.op,
                                     .compression = options_.compression,
                                     .process_set = options_.process_set};
  reduction.future = detail::call_async(detail::ReducescatterCall{whole, shards, options, passes_});
  pending_.push_back(std::move(reduction));
  ++counters_.reductions;
}

// Ranks reduce units that contain others at different times, so nobody waits for those before the
// end of the pass.
void UnitSchedule::land_reductions(bool of_containers) {
  for (auto next = pending_.begin(); next != pending_.end();) {
    if (!of_containers && units_[next->unit].shape.contains_units) {
      ++next;
      continue;
    }
    Reduction landed = std::move(*next);
    next = pending_.erase(next);
    landed.future.get();
    if (!failed_) landed.gradients->accumulate();
  }
}

void UnitSchedule::end_pass() { finish_pass(); }

void UnitSchedule::fail_pass() noexcept {
  begin_pass();
  failed_ = true;
  FirstError ignored;
  ignored.attempt([this] { finish_pass(); });
}

void UnitSchedule::take_part() {
  if (in_forward_ || in_pass_)
    throw InvalidArgument("FullySharded: take_part() inside of forward or backward");
  if (is_broken_) {
    is_broken_ = false;
    in_forward_ = true;
    end_forward();
  } else if (forwards_ == 0) {
    begin_forward(/*recording=*/true);
    end_forward();
  }
  begin_pass();
  end_pass();
}

void UnitSchedule::finish_pass() {
  FirstError error;
  std::vector<std::int32_t> summary;
  error.attempt([&] {
    pass_over_backward_until(0, /*all=*/true);
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (!units_[i].is_reduced && is_order_agreed_) gradients_complete(i);
  });
  // A rank that cannot take part, such as for lack of memory, must not wait here for the others:
  // they wait for it. They learn of the failure when this rank leaves the session.
  if (!error) {
    error.attempt([&] { land_reductions(/*of_containers=*/true); });
    if (error) failed_ = true;
    error.attempt([&] { summary = summarize(); });
  }
  error.attempt([&] {
    if (summary.empty()) return;
    if (summary.front() != 0) refuse_failed();
    if (reducing_) reduce_late(summary);
  });
  if (error)
    for (const Unit& unit : units_) unit.memory->fail_pass();
  leave_pass();
  error.rethrow();
}

std::vector<std::int32_t> UnitSchedule::summarize() {
  std::vector<std::int32_t> summary{failed_ ? 1 : 0};
  for (const Unit& unit : units_) summary.push_back(unit.is_late ? 1 : 0);
  for (const Unit& unit : units_) {
    const std::vector<std::int32_t> used =
        reducing_ ? unit.memory->take_used() : std::vector<std::int32_t>(unit.shape.trained);
    summary.insert(summary.end(), used.begin(), used.end());
  }
  const AllreduceOptions options{
      .name = prefix_ + "pass", .op = ReduceOp::max, .process_set = options_.process_set};
  const TensorView view(summary);
  detail::call(detail::AllreduceCall{view, view, options, passes_});
  return summary;
}

void UnitSchedule::reduce_late(const std::vector<std::int32_t>& summary) {
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (summary[1 + i] != 0) reduce(i, ".late");
  land_reductions(/*of_containers=*/true);
  auto used = summary.begin() + 1 + static_cast<std::ptrdiff_t>(units_.size());
  for (const Unit& unit : units_) {
    const auto end = used + static_cast<std::ptrdiff_t>(unit.shape.trained);
    unit.memory->end_pass({used, end});
    used = end;
  }
}

void UnitSchedule::refuse_failed() {
  const std::vector<std::int32_t> own{failed_ ? 1 : 0};
  const Gathered<std::int32_t> all =
      allgather(own, {.name = prefix_ + "failures", .process_set = options_.process_set});
  std::vector<int> ranks;
  for (std::size_t i = 0; i < all.values.size(); ++i)
    if (all.values[i] != 0) ranks.push_back(options_.process_set.ranks()[i]);
  throw BackwardFailed(fmt::format("FullySharded: forward or backward has thrown on rank {}, so "
                                   "this pass has no valid gradients",
                                   fmt::join(ranks, ", ")),
                       prefix_ + "pass", ranks);
}

void UnitSchedule::leave_pass() noexcept {
  pending_.clear();
  if (in_pass_) ++passes_;
  in_pass_ = false;
  failed_ = false;
  forwards_ = 0;
  for (Unit& unit : units_) unit.is_used = unit.is_reached = unit.is_reduced = unit.is_late = false;
  free_all();
}

}  // namespace kolo::internal
