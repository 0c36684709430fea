// SPDX-License-Identifier: Apache-2.0
#include "negotiation/replay/planner.hpp"

#include <algorithm>
#include <utility>

namespace kolo::internal::negotiation {
namespace {

/// Bounds the memory for operations that never repeat.
constexpr std::size_t max_operations = 1 << 12;

/// A plan with fewer passes did not pay off: its start and end cost more than it saved.
constexpr std::uint64_t useful_passes = 64;
constexpr int min_required = 2;
constexpr int max_required = 1 << 10;

bool alike_but_for_step(const Descriptor& a, const Descriptor& b) {
  if (a.step == b.step) return a == b;
  Descriptor with_step = a;
  with_step.step = b.step;
  return with_step == b;
}

}  // namespace

void Planner::see(const BatchEntry& batch, const ResponseCache& cache, TimePoint now) {
  std::vector<Operation> operations;
  batch.slots.for_each([&](CacheSlot slot) {
    if (cache.has(slot)) operations.push_back({cache[slot].key, cache[slot].descriptor, 0});
  });
  for (const UncachedOperation& uncached : batch.uncached)
    operations.push_back({uncached.key, uncached.descriptor, 0});
  switch (relation(operations)) {
    case Relation::continues: break;
    case Relation::begins: end_cycle(); break;
    case Relation::neither: interrupt(); break;
  }
  if (current_.operations.size() + operations.size() > max_operations) return interrupt();
  add(std::move(operations), now);
}

/// Decides whether a batch continues the current cycle or begins the next one. A batch begins the
/// next cycle if all its names occur in the current cycle. In a cycle without names, it does so if
/// its first operation is like the first one of the cycle.
Planner::Relation Planner::relation(const std::vector<Operation>& batch) const {
  if (current_.operations.empty()) return Relation::continues;
  if (next_) return Relation::begins;
  if (current_.named.empty()) {
    const Operation& first = batch.front();
    return !first.key.named() &&
                   alike_but_for_step(first.descriptor, current_.operations.front().descriptor)
               ? Relation::begins
               : Relation::continues;
  }
  std::size_t named = 0;
  std::size_t known = 0;
  for (const Operation& operation : batch) {
    if (!operation.key.named()) continue;
    ++named;
    if (current_.named.contains(operation.key.name)) ++known;
  }
  if (known == 0) return Relation::continues;
  return known == named ? Relation::begins : Relation::neither;
}

void Planner::add(std::vector<Operation> batch, TimePoint now) {
  current_.last = now;
  for (Operation& operation : batch) {
    const std::size_t place = current_.operations.size();
    operation.batch = current_.batches;
    if (operation.key.named()) {
      current_.named.emplace(operation.key.name, place);
    } else {
      current_.numbered.push_back(place);
    }
    current_.operations.push_back(std::move(operation));
  }
  ++current_.batches;
  next_ = compare();
}

void Planner::end_cycle() {
  repetitions_ = next_ ? repetitions_ + 1 : 1;
  previous_ = std::exchange(current_, {});
  next_.reset();
}

void Planner::interrupt() {
  current_ = {};
  previous_ = {};
  next_.reset();
  repetitions_ = 0;
}

void Planner::ended(std::uint64_t passes) {
  required_ = passes < useful_passes ? std::min(2 * required_, max_required)
                                     : std::max(required_ / 2, min_required);
  interrupt();
}

/// The operations of the current cycle as the next pass will submit them; none unless the current
/// cycle equals the previous one.
std::optional<std::vector<PlanItem>> Planner::compare() const {
  const std::size_t count = current_.operations.size();
  const std::uint64_t numbered = current_.numbered.size();
  if (count == 0 || count != previous_.operations.size() || numbered != previous_.numbered.size())
    return std::nullopt;
  const auto by_number = [](const Cycle& cycle) {
    std::vector<std::size_t> places = cycle.numbered;
    std::ranges::sort(places, {}, [&](std::size_t i) { return cycle.operations[i].key.number; });
    return places;
  };
  const std::vector<std::size_t> now = by_number(current_);
  const std::vector<std::size_t> before = by_number(previous_);
  std::vector<PlanItem> items(count);
  const auto match = [&](std::size_t place, const Operation& earlier) {
    const Operation& operation = current_.operations[place];
    if (!alike_but_for_step(operation.descriptor, earlier.descriptor)) return false;
    const std::int64_t stride = operation.descriptor.step - earlier.descriptor.step;
    PlanItem& item = items[place];
    item = {operation.key, operation.descriptor, operation.key.named() ? 0 : numbered, stride};
    item.key.number += item.number_stride;
    item.descriptor.step += stride;
    return true;
  };
  // Unnamed operations need consecutive numbers in both cycles. Only then do their numbers grow by
  // `numbered` in each pass, so that a plan can predict them.
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Operation& earlier = previous_.operations[before[i]];
    if (current_.operations[now[i]].key.number != earlier.key.number + numbered ||
        earlier.key.number != previous_.operations[before.front()].key.number + i ||
        !match(now[i], earlier))
      return std::nullopt;
  }
  for (const auto& [name, place] : current_.named) {
    const auto earlier = previous_.named.find(name);
    if (earlier == previous_.named.end() || !match(place, previous_.operations[earlier->second]))
      return std::nullopt;
  }
  return items;
}

std::optional<PlanEntry> Planner::plan(std::uint64_t epoch) const {
  if (!next_ || repetitions_ + 1 < required_) return std::nullopt;
  PlanEntry entry{epoch, {}, current_.last - previous_.last};
  entry.batches.resize(current_.batches);
  for (std::size_t place = 0; place < next_->size(); ++place)
    entry.batches[current_.operations[place].batch].push_back((*next_)[place]);
  return entry;
}

}  // namespace kolo::internal::negotiation
