// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"

namespace kolo::internal {

/// A gather of one unit. The session writes to the whole parameters until `done`.
struct UnitSchedule::Gather {
  std::vector<std::int64_t> elements{};  // of each whole parameter
  std::vector<std::byte> elsewhere{};    // used if a rank has joined and sends no shards
  Future<std::vector<std::vector<std::int64_t>>> done{};
};

UnitSchedule::UnitSchedule(std::string prefix, UnitScheduleOptions options)
    : prefix_(std::move(prefix)), options_(std::move(options)) {}

UnitSchedule::~UnitSchedule() { reset(); }

void UnitSchedule::add(const std::string& name, const UnitShape& shape, UnitMemory& memory) {
  units_.push_back({.name = name, .shape = shape, .memory = &memory, .position = units_.size()});
  order_.push_back(units_.size() - 1);
}

// ---- Memory

void UnitSchedule::start_gather(Unit& unit) {
  const std::int64_t now = unit.memory->version();
  if (unit.gather && unit.version == now) return;
  if (unit.gather) finish_gather(unit);
  if (unit.is_gathered && unit.version == now) return;
  if (!unit.is_allocated) unit.memory->allocate();
  unit.is_allocated = true;
  unit.is_gathered = false;
  unit.version = now;
  auto gather = std::make_unique<Gather>();
  gather->elements = unit.memory->elements();
  if (gather->elements.empty()) {
    unit.is_gathered = true;
    return;
  }
  const std::vector<ConstTensorView> shards = unit.memory->shards();
  const std::vector<void*> places = unit.memory->places();
  std::vector<Allocator> allocators;
  for (std::size_t i = 0; i < places.size(); ++i)
    allocators.emplace_back([place = places[i], expected = gather->elements[i],
                             bytes = size_of(shards[i].dtype()),
                             elsewhere = &gather->elsewhere](std::span<const std::int64_t> rows) {
      const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
      if (all == expected) return place;
      elsewhere->resize(std::max(elsewhere->size(), static_cast<std::size_t>(all) * bytes));
      return static_cast<void*>(elsewhere->data());
    });
  gather->done = grouped_allgather_async(shards, allocators,
                                         {.name = operation(unit, in_pass_ ? ".again" : ".gather"),
                                          .process_set = options_.process_set});
  unit.gather = std::move(gather);
  ++counters_.gathers;
}

void UnitSchedule::finish_gather(Unit& unit) {
  if (!unit.gather) return;
  if (!unit.gather->done.ready()) ++counters_.late_gathers;
  const std::unique_ptr<Gather> gather = std::move(unit.gather);
  const std::vector<std::vector<std::int64_t>> rows = gather->done.get();
  unit.memory->gathered();
  std::vector<int> joined;
  const std::vector<int> members = options_.process_set.ranks();
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t rank = 0; rank < rows[i].size(); ++rank)
      if (rows[i][rank] != reducescatter_rows(gather->elements[i], static_cast<int>(rank),
                                              static_cast<int>(members.size())))
        joined.push_back(members[rank]);
  std::ranges::sort(joined);
  const auto same = std::ranges::unique(joined);
  joined.erase(same.begin(), same.end());
  if (joined.empty()) {
    unit.is_gathered = true;
    return;
  }
  throw Mismatch(fmt::format("FullySharded: every rank has a shard of each parameter, but these "
                             "have called join(): {}. A rank without data calls take_part() "
                             "instead",
                             fmt::join(joined, ", ")),
                 unit.name, joined);
}

void UnitSchedule::make_whole(Unit& unit) {
  start_gather(unit);
  finish_gather(unit);
}

// A pending gather still writes to the memory, so its end comes first.
void UnitSchedule::free(Unit& unit) noexcept {
  unit.gather.reset();
  if (unit.is_allocated) unit.memory->free();
  unit.is_allocated = false;
  unit.is_gathered = false;
}

void UnitSchedule::free_all() noexcept {
  if (holders_ > 0) return;
  for (Unit& unit : units_)
    if (unit.running == 0) free(unit);
}

void UnitSchedule::gather(std::size_t unit) { make_whole(units_.at(unit)); }

void UnitSchedule::release(std::size_t unit) noexcept {
  if (holders_ == 0 && !in_pass_ && forwards_ == 0 && units_[unit].running == 0) free(units_[unit]);
}

void UnitSchedule::gather_all() {
  for (Unit& unit : units_) start_gather(unit);
  for (Unit& unit : units_) finish_gather(unit);
  ++holders_;
}

void UnitSchedule::release_all() noexcept {
  --holders_;
  if (!in_pass_ && forwards_ == 0) free_all();
}

void UnitSchedule::reset() noexcept {
  for (Unit& unit : units_) {
    free(unit);
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
  if (unit.running == 0 && holders_ == 0 && !stays_for_backward(unit)) free(unit);
}

void UnitSchedule::begin_forward(bool recording) {
  if (is_broken_) fail_broken_forward();
  // A step has changed the shards. An optimizer that writes to their memory by itself may not have
  // changed their versions.
  if (forwards_ == 0) free_all();
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
  if (unit.running == 0 && holders_ == 0 && !stays_for_backward(unit)) free(unit);
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

void UnitSchedule::enter_backward(std::size_t index, std::int64_t version) {
  begin_pass();
  Unit& unit = units_.at(index);
  if (unit.memory->version() != version)
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
      free(unit);
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
    free(unit);
  if (unit.shape.trained == 0) return;
  land_reductions(/*of_containers=*/false);  // so one reduction is in flight at a time
  const std::vector<ConstTensorView> whole = reduction.gradients->whole();
  const std::vector<TensorView> shards = reduction.gradients->shards();
  const ReducescatterOptions options{.name = operation(unit, round),
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
    landed.gradients->accumulate();
  }
}

void UnitSchedule::end_pass() { finish_pass(/*failed=*/false); }

void UnitSchedule::fail_pass() noexcept {
  begin_pass();
  FirstError ignored;
  ignored.attempt([this] { finish_pass(/*failed=*/true); });
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

void UnitSchedule::finish_pass(bool failed) {
  FirstError error;
  std::vector<std::int32_t> summary;
  error.attempt([&] {
    pass_over_backward_until(0, /*all=*/true);
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (!units_[i].is_reduced && is_order_agreed_) gradients_complete(i);
  });
  error.attempt([&] { land_reductions(/*of_containers=*/true); });
  error.attempt([&] { summary = summarize(failed); });
  error.attempt([&] {
    if (summary.empty()) return;
    if (summary.front() != 0) refuse_failed(failed);
    if (reducing_) reduce_late(summary);
  });
  leave_pass();
  error.rethrow();
}

std::vector<std::int32_t> UnitSchedule::summarize(bool failed) {
  std::vector<std::int32_t> summary{failed ? 1 : 0};
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

void UnitSchedule::refuse_failed(bool failed) {
  const std::vector<std::int32_t> own{failed ? 1 : 0};
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
  forwards_ = 0;
  for (Unit& unit : units_) unit.is_used = unit.is_reached = unit.is_reduced = unit.is_late = false;
  free_all();
}

}  // namespace kolo::internal
