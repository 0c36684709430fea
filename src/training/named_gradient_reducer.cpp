// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a custom optimizer, and broadcasts its parameters.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "base/overlap.hpp"
#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/session.hpp"
#include "training/optimizer_setup.hpp"
#include "training/step_number.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

constexpr const char* subject = "DistributedOptimizer";

}  // namespace

struct NamedGradientReducer::State {
  /// Gradients that one operation reduces: a group, or a single gradient without a group.
  struct Unit {
    std::string name;                    // of the operation
    std::vector<std::size_t> gradients;  // by position
    std::size_t ready = 0;               // number of gradients that are ready
    bool submitted = false;
    Future<void> future{};
  };

  DistributedOptimizerOptions options;
  std::vector<Item> items;
  std::unordered_map<std::string, std::size_t> position_of;
  std::vector<Unit> units;
  std::vector<std::size_t> unit_of;  // by position
  std::vector<bool> ready;           // by position, in this pass
  Gradients listed;                  // in this step, when the first of its gradients became ready
  StepNumber step;
  int passes_ended = 0;  // in this step
  bool synchronized = false;
  bool takes_part = true;

  State(const Gradients& gradients, const DistributedOptimizerOptions& given);

  [[nodiscard]] GroupNumbers group_numbers() const;
  void make_units(std::int64_t number, const GroupNumbers& groups);
  [[nodiscard]] bool in_last_pass() const {
    return passes_ended == options.backward_passes_per_step - 1;
  }
  void require_not_synchronized(const std::string& call) const;
  void require_same(const Gradients& gradients) const;
  void require_in_place(const Gradients& gradients) const;
  void require_disjoint(const Gradients& gradients) const;
  void submit(Unit& unit, const Gradients& gradients);
  void reduce(const Gradients& gradients);
  void wait();
  bool forget_passes_before_join();
  void clear();
  void end_step();
};

NamedGradientReducer::State::State(const Gradients& gradients,
                                   const DistributedOptimizerOptions& given)
    : options(given), items(items_of(gradients, subject)) {
  require_valid(options);
  for (const Item& item : items) require_short(item.name);
  for (std::size_t i = 0; i < items.size(); ++i) position_of.emplace(items[i].name, i);
  ready.assign(items.size(), false);
  takes_part = options.process_set.contains(rank());
  const GroupNumbers groups = group_numbers();  // refused before other ranks wait for this one
  require_disjoint(gradients);
  if (!takes_part) return;
  const std::int64_t number = agree_on_optimizer_number(options.process_set);
  make_units(number, groups);
  // Agreed at construction: during a step, different groups would only show as a hang.
  std::vector<Item> agreed = items;
  for (std::size_t i = 0; i < items.size(); ++i)
    agreed[i].description += ", reduced in " + units[unit_of[i]].name;
  agreed.push_back(describe(options));
  require_agreement(fmt::format("kolo.optimizer.{}", number),
                    "The gradients of the DistributedOptimizer", agreed, options.process_set);
}

GroupNumbers NamedGradientReducer::State::group_numbers() const {
  std::vector<std::string> names;
  for (const Item& item : items) names.push_back(item.name);
  const auto known = [&](const std::string& name) {
    return position_of.contains(name) ? std::optional(name) : std::nullopt;
  };
  return options.num_groups > 0
             ? consecutive_groups(names, static_cast<std::size_t>(options.num_groups))
             : listed_groups(options.groups, known);
}

void NamedGradientReducer::State::make_units(std::int64_t number, const GroupNumbers& groups) {
  std::unordered_map<std::size_t, std::size_t> unit_of_group;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto group = groups.find(items[i].name);
    // A group's operation is named after its number: it must not depend on which gradients the
    // group has, because names identify operations across ranks. Without the dot it is the name of
    // no gradient's operation.
    std::size_t unit = units.size();
    std::string name = fmt::format("{}.{}", number, items[i].name);
    if (group != groups.end()) {
      unit = unit_of_group.try_emplace(group->second, unit).first->second;
      name = fmt::format("{}(group {})", number, group->second);
    }
    if (unit == units.size()) units.push_back({.name = std::move(name), .gradients = {}});
    units[unit].gradients.push_back(i);
    unit_of.push_back(unit);
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
        "{}: gradients() must always return the same names in the same order", subject));
}

// The gradients of a synchronized step may be changed, to clip them, so a trainer that goes on
// without ending the step cannot be told from one that clips, except by its calls.
void NamedGradientReducer::State::require_not_synchronized(const std::string& call) const {
  if (!synchronized) return;
  throw InvalidArgument(
      fmt::format("{}: {} after synchronize(), but its step has not ended. Call step(), or "
                  "skip_step() to drop the gradients",
                  subject, call));
}

// Operations in progress write to the memory that was listed when they were submitted.
void NamedGradientReducer::State::require_in_place(const Gradients& gradients) const {
  for (const Unit& unit : units) {
    if (!unit.submitted || listed.empty()) continue;
    for (const std::size_t i : unit.gradients) {
      if (gradients[i].tensor.data() == listed[i].tensor.data()) continue;
      throw InvalidArgument(
          fmt::format("{}: the memory of '{}' has moved since ready(). Gradients must stay in "
                      "place from the first ready() of a step to its end",
                      subject, items[i].name),
          items[i].name);
    }
  }
}

// Operations that are pending together must not write to the same memory.
void NamedGradientReducer::State::require_disjoint(const Gradients& gradients) const {
  const auto both = find_overlap_of_written(gradients.size(), [&](std::size_t i) {
    return MemoryUse::of(gradients[i].tensor, i, /*written=*/true);
  });
  if (!both) return;
  const std::string& second = items[both->second].name;
  throw InvalidArgument(
      fmt::format("{}: the gradients '{}' and '{}' share memory. List a gradient once, also if "
                  "several parameters share it",
                  subject, items[both->first].name, second),
      second);
}

void NamedGradientReducer::State::submit(Unit& unit, const Gradients& gradients) {
  std::vector<TensorView> tensors;
  for (const std::size_t i : unit.gradients) tensors.push_back(gradients[i].tensor);
  // The last pass of a step is not ended by `end_pass`, so it is not counted yet.
  const double passes =
      options.accumulation == Accumulation::mean ? static_cast<double>(passes_ended + 1) : 1.0;
  const double factor = options.gradient_predivide_factor;
  unit.future = call_async(GroupedAllreduceCall{tensors,
                                                {.name = unit.name,
                                                 .op = options.op,
                                                 .prescale = 1.0 / (factor * passes),
                                                 .postscale = factor,
                                                 .compression = options.compression,
                                                 .process_set = options.process_set},
                                                step.of_operation()});
  step.begin();
  unit.submitted = true;
}

void NamedGradientReducer::State::reduce(const Gradients& gradients) {
  // All are submitted before the first wait, so that they travel together.
  for (Unit& unit : units)
    if (!unit.submitted) submit(unit, gradients);
  wait();
  synchronized = true;
}

// Waits for all operations even after one has failed, because they still write to the gradients.
// After a failure the step is over on all ranks, so that they stay in step.
void NamedGradientReducer::State::wait() {
  std::exception_ptr first_error;
  for (Unit& unit : units) {
    if (!unit.future.valid()) continue;
    try {
      unit.future.get();
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
      unit.future = {};
    }
  }
  if (!first_error) return;
  end_step();
  std::rethrow_exception(first_error);
}

// The other ranks do not know of passes that a join cut before anything was submitted, so this rank
// drops them alone. Returns whether there were any.
bool NamedGradientReducer::State::forget_passes_before_join() {
  if (synchronized || !step.is_behind_join()) return false;
  const bool any = passes_ended > 0 || std::find(ready.begin(), ready.end(), true) != ready.end();
  clear();
  step.catch_up();
  return any;
}

void NamedGradientReducer::State::clear() {
  for (Unit& unit : units) {
    unit.submitted = false;
    unit.ready = 0;
  }
  std::fill(ready.begin(), ready.end(), false);
  listed.clear();
  passes_ended = 0;
  synchronized = false;
}

void NamedGradientReducer::State::end_step() {
  clear();
  step.advance();
}

NamedGradientReducer::NamedGradientReducer(const Gradients& gradients,
                                           const DistributedOptimizerOptions& options)
    : state_(std::make_unique<State>(gradients, options)) {}

NamedGradientReducer::NamedGradientReducer(NamedGradientReducer&&) noexcept = default;
NamedGradientReducer& NamedGradientReducer::operator=(NamedGradientReducer&&) noexcept = default;
NamedGradientReducer::~NamedGradientReducer() = default;

void NamedGradientReducer::ready(const std::string& name,
                                 const std::function<Gradients()>& gradients) {
  State& state = *state_;
  const auto found = state.position_of.find(name);
  if (found == state.position_of.end())
    throw InvalidArgument(fmt::format("{}: there is no gradient '{}'", subject, name), name);
  state.require_not_synchronized(fmt::format("ready('{}')", name));
  state.forget_passes_before_join();
  const std::size_t position = found->second;
  if (state.ready[position])
    throw InvalidArgument(fmt::format("{}: '{}' was already ready in this pass", subject, name),
                          name);
  const bool may_submit = state.takes_part && state.in_last_pass();
  if (may_submit && state.listed.empty()) {
    Gradients all = gradients();
    state.require_same(all);
    state.listed = std::move(all);
  }
  state.ready[position] = true;
  if (!may_submit) return;
  // The ranks agree on the order of operations by name, so units may become ready in any order.
  State::Unit& unit = state.units[state.unit_of[position]];
  if (++unit.ready == unit.gradients.size()) state.submit(unit, state.listed);
}

void NamedGradientReducer::end_pass() {
  State& state = *state_;
  state.require_not_synchronized("end_pass()");
  state.forget_passes_before_join();
  if (state.in_last_pass())
    throw InvalidArgument(
        fmt::format("{}: a step has {} backward passes, and this is the last: call step()", subject,
                    state.options.backward_passes_per_step));
  ++state.passes_ended;
  std::fill(state.ready.begin(), state.ready.end(), false);
}

void NamedGradientReducer::synchronize(const Gradients& gradients) {
  State& state = *state_;
  state.require_not_synchronized("synchronize()");
  state.require_same(gradients);
  state.forget_passes_before_join();
  state.require_in_place(gradients);
  state.require_disjoint(gradients);
  state.reduce(gradients);
}

bool NamedGradientReducer::synchronized() const { return state_->synchronized; }

void NamedGradientReducer::skip_step(const std::function<Gradients()>& gradients) {
  if (state_->forget_passes_before_join()) return;
  if (state_->step.is_cut_by_join()) {
    state_->wait();
  } else if (!state_->synchronized) {
    // Also if nothing was submitted here: other ranks may have begun the step.
    const Gradients all = gradients();
    state_->require_same(all);
    // Also if a submitted gradient has moved: the other ranks wait for this rank's other gradients,
    // and what is dropped may be anywhere.
    state_->reduce(all);
  }
  end_step();
}

void NamedGradientReducer::end_step() { state_->end_step(); }

}  // namespace kolo::detail

namespace kolo {

void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root,
                          const ProcessSet& set) {
  const std::string operation = "kolo.broadcast_parameters";
  const std::vector<internal::Item> items = internal::items_of(parameters, "broadcast_parameters");
  internal::require_root("broadcast_parameters", root, set);
  internal::require_agreement(operation, "The parameters", items, set);
  std::vector<Future<void>> futures;
  for (const auto& [name, tensor] : parameters)
    futures.push_back(
        broadcast_async(tensor, root, {.name = operation + '.' + name, .process_set = set}));
  for (Future<void>& future : futures) future.get();
}

}  // namespace kolo
