// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/named_gradient_reducer_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/optimizer/gradient_norm.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::detail {

using namespace internal;
NamedGradientReducer::State::State(const Gradients& gradients,
                                   const DistributedOptimizerOptions& given,
                                   std::function<Gradients()> of, std::optional<Sharding> divided)
    : options(given),
      parameters(std::move(of)),
      sharding(divided),
      items(items_of(gradients, subject())),
      reducer(storage, given, /*agrees=*/false) {
  require_valid(options, subject());
  if (sharding) require_divisible(options, *sharding);
  compare_parameters();
  for (const Item& item : items) require_short(item.name, subject());
  for (std::size_t i = 0; i < items.size(); ++i) position_of.emplace(items[i].name, i);
  ready.assign(items.size(), false);
  takes_part = options.process_set.contains(rank());
  const GroupNumbers groups = group_numbers();  // throws before other ranks wait for this one
  require_disjoint(gradients);
  if (sharding) divide(gradients);
  if (!takes_part) {
    require_memory_for_mean(gradients);
    return;
  }
  add_gradients(groups);
  agree();
}

// The ranks agree at construction, because groups that differ would only show as a hang in a step.
void NamedGradientReducer::State::agree() {
  std::vector<Item> all = items;
  if (parameters && !sharding)  // a ShardedOptimizer has parameters like its gradients
    for (Item& parameter : items_of(parameters(), subject()))
      all.push_back({"parameter " + parameter.name, std::move(parameter.description)});
  reducer.agree(subject(), sharding ? describe(*sharding) : std::string(), std::move(all));
}

void NamedGradientReducer::State::compare_parameters() {
  const ParameterComparison& compare = options.compare;
  if (!parameters) {
    if (compare.every == 0 && compare.except.empty()) return;
    throw InvalidArgument(
        fmt::format("{}: the option compare needs an optimizer with parameters(), which lists them",
                    subject()));
  }
  Gradients listed = parameters();
  for (const std::string& name : compare.except)
    if (std::ranges::find(listed, name, &NamedTensor::name) == listed.end())
      throw InvalidArgument(
          fmt::format("{}: compare.except: there is no parameter '{}'", subject(), name), name);
  const auto remove_excepted = [this](Gradients& all) {
    const std::vector<std::string>& except = options.compare.except;
    std::erase_if(all, [&](const NamedTensor& parameter) {
      return std::ranges::find(except, parameter.name) != except.end();
    });
  };
  remove_excepted(listed);
  const auto hash = [this, remove_excepted] {
    Gradients all = parameters();
    remove_excepted(all);
    return hashes_of(all);
  };
  reducer.comparison().set_parameters([size = listed.size()] { return size; }, hash);
}

GroupNumbers NamedGradientReducer::State::group_numbers() const {
  std::vector<std::string> names;
  for (const Item& item : items) names.push_back(item.name);
  const auto known = [&](const std::string& name) {
    return position_of.contains(name) ? std::optional(name) : std::nullopt;
  };
  return options.num_groups > 0
             ? consecutive_groups(names, static_cast<std::size_t>(options.num_groups))
             : listed_groups(options.groups, known, subject());
}

void NamedGradientReducer::State::add_gradients(const GroupNumbers& groups) {
  for (const Item& item : items) {
    const auto group = groups.find(item.name);
    reducer.add(item.name, group == groups.end() ? std::optional<std::size_t>()
                                                 : std::optional(group->second));
  }
}

void NamedGradientReducer::State::require_same(const Gradients& gradients) const {
  const bool same =
      gradients.size() == items.size() &&
      std::ranges::equal(gradients, items, [](const NamedTensor& gradient, const Item& item) {
        return gradient.name == item.name;
      });
  if (!same)
    throw InvalidArgument(fmt::format(
        "{}: gradients() must always return the same names in the same order", subject()));
}

// A program may change synchronized gradients, to clip them. So changed gradients do not show that
// the program forgot to end the step; only its calls do.
void NamedGradientReducer::State::require_not_synchronized(const std::string& call) const {
  if (!synchronized) return;
  throw InvalidArgument(
      fmt::format("{}: {} after synchronize(), but its step has not ended. Call step(), or "
                  "skip_step() to drop the gradients",
                  subject(), call));
}

// Outside the process set no operation divides the gradients, so `reduce` does, in CPU memory.
void NamedGradientReducer::State::require_memory_for_mean(const Gradients& gradients) const {
  if (options.accumulation != Accumulation::mean || options.backward_passes_per_step == 1) return;
  for (const auto& [name, tensor] : gradients)
    if (tensor.device().type != DeviceType::cpu)
      throw InvalidArgument(
          fmt::format("{}: '{}' is in GPU memory, and this rank is not in the process set: here, "
                      "the mean of several backward passes needs CPU memory. Use "
                      "Accumulation::sum, and divide the gradients",
                      subject(), name),
          name);
}

// Operations in progress write to the memory that was listed when they were submitted.
void NamedGradientReducer::State::require_in_place(const Gradients& gradients) const {
  if (storage.tensors.empty()) return;
  for (std::size_t i = 0; i < gradients.size() && i < reducer.slots(); ++i) {
    if (!reducer.is_submitted(i) || gradients[i].tensor.data() == storage.tensors[i].tensor.data())
      continue;
    throw InvalidArgument(
        fmt::format("{}: the memory of '{}' has moved since ready(). Gradients must stay in "
                    "place from the first ready() of a step to its end",
                    subject(), items[i].name),
        items[i].name);
  }
}

void NamedGradientReducer::State::require_disjoint(const Gradients& gradients) const {
  internal::require_disjoint(
      subject(), gradients.size(),
      [&](std::size_t i) { return MemoryUse::of(gradients[i].tensor, i, /*written=*/true); },
      [&](std::size_t slot) { return items[slot].name; });
}

// The last pass of a step is not ended by `end_pass`, so the reducer has not counted it yet.
double NamedGradientReducer::State::divisor() const {
  return options.accumulation == Accumulation::mean ? static_cast<double>(reducer.passes() + 1)
                                                    : 1.0;
}

void NamedGradientReducer::State::list(Gradients gradients) {
  storage.tensors = std::move(gradients);
  reducer.set_scales(1.0, 1.0 / (options.gradient_predivide_factor * divisor()));
}

void NamedGradientReducer::State::note_change() {
  if (!std::exchange(changes, true)) ++reduction;
}

void NamedGradientReducer::State::reduce(Gradients gradients) {
  if (!reducer.active()) reducer.begin(/*reducing=*/true);
  list(std::move(gradients));
  // Outside the process set, no operation divides the gradients.
  if (!takes_part && divisor() != 1.0) multiply(storage.tensors, 1.0 / divisor());
  // All gradients are submitted before the first wait, so that they travel together.
  reducer.submit_rest();
  reducer.finish();
  clear();
  ++reduction;
  changes = false;
  try {
    reducer.rethrow();
  } catch (...) {
    note_change();
    throw;
  }
}

// Returns true if some of the dropped gradients had been submitted.
bool NamedGradientReducer::State::drop_before_join() {
  if (synchronized || !reducer.step().is_before_join()) return false;
  unstepped = false;
  const bool submitted = reducer.drop_before_join() == PassReducer::Cut::operations;
  clear();
  return submitted;
}

void NamedGradientReducer::State::clear() {
  std::fill(ready.begin(), ready.end(), false);
  storage.tensors.clear();
  reducer.forget_passes();
}

void NamedGradientReducer::State::rejoin(const Gradients& gradients) {
  require_world_to_rejoin(options.process_set, subject());
  require_same(gradients);
  reducer.rejoin();
  unstepped = false;
  drop_step();
  if (sharding) divide(gradients);
  agree();
}

void NamedGradientReducer::State::drop_step() {
  clear();
  synchronized = false;
  note_change();
}

void NamedGradientReducer::State::end_step() {
  drop_step();
  reducer.end_step();
}

}  // namespace kolo::detail
