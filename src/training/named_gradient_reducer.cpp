// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a custom optimizer, and broadcasts its parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/session.hpp"
#include "training/gradient_norm.hpp"
#include "training/optimizer_setup.hpp"
#include "training/reduction_core.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

constexpr const char* subject = "DistributedOptimizer";

}  // namespace

struct NamedGradientReducer::State {
  /// The memory that the program listed last.
  struct ListedGradients : GradientSource {
    std::vector<NamedTensor> tensors;

    TensorView open(std::size_t slot, double /*factor*/) override { return tensors[slot].tensor; }
  };

  DistributedOptimizerOptions options;
  std::vector<Item> items;
  std::unordered_map<std::string, std::size_t> position_of;
  std::vector<bool> ready;  // by position, in this pass
  ListedGradients source;   // of this pass, when the first of its gradients became ready
  ReductionCore core;
  bool synchronized = false;
  bool takes_part = true;
  std::int64_t reduction = 0;  // increases when gradients are reduced, or begin to change
  bool changes = true;         // since the last reduction

  State(const Gradients& gradients, const DistributedOptimizerOptions& given);

  [[nodiscard]] GroupNumbers group_numbers() const;
  void add_gradients(const GroupNumbers& groups);
  void require_not_synchronized(const std::string& call) const;
  void require_same(const Gradients& gradients) const;
  void require_in_place(const Gradients& gradients) const;
  void require_disjoint(const Gradients& gradients) const;
  void list(Gradients gradients);
  void reduce(Gradients gradients);
  void note_change();
  bool drop_before_join();
  void clear();
  void drop_step();
  void end_step();
};

NamedGradientReducer::State::State(const Gradients& gradients,
                                   const DistributedOptimizerOptions& given)
    : options(given), items(items_of(gradients, subject)), core(source, given, /*counted=*/false) {
  require_valid(options);
  for (const Item& item : items) require_short(item.name);
  for (std::size_t i = 0; i < items.size(); ++i) position_of.emplace(items[i].name, i);
  ready.assign(items.size(), false);
  takes_part = options.process_set.contains(rank());
  const GroupNumbers groups = group_numbers();  // refused before other ranks wait for this one
  require_disjoint(gradients);
  if (!takes_part) return;
  core.set_number(agree_on_optimizer_number(options.process_set));
  add_gradients(groups);
  // Agreed at construction: during a step, different groups would only show as a hang.
  std::vector<Item> agreed = items;
  for (std::size_t i = 0; i < items.size(); ++i)
    agreed[i].description += ", reduced in " + core.operation_of(i);
  agreed.push_back(describe(options));
  require_agreement(fmt::format("kolo.optimizer.{}", core.number()),
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

void NamedGradientReducer::State::add_gradients(const GroupNumbers& groups) {
  for (const Item& item : items) {
    const auto group = groups.find(item.name);
    core.add(item.name,
             group == groups.end() ? std::optional<std::size_t>() : std::optional(group->second));
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
  if (source.tensors.empty()) return;
  for (std::size_t i = 0; i < gradients.size() && i < core.slots(); ++i) {
    if (!core.is_submitted(i) || gradients[i].tensor.data() == source.tensors[i].tensor.data())
      continue;
    throw InvalidArgument(
        fmt::format("{}: the memory of '{}' has moved since ready(). Gradients must stay in "
                    "place from the first ready() of a step to its end",
                    subject, items[i].name),
        items[i].name);
  }
}

void NamedGradientReducer::State::require_disjoint(const Gradients& gradients) const {
  internal::require_disjoint(
      gradients.size(),
      [&](std::size_t i) { return MemoryUse::of(gradients[i].tensor, i, /*written=*/true); },
      [&](std::size_t slot) { return items[slot].name; });
}

void NamedGradientReducer::State::list(Gradients gradients) {
  source.tensors = std::move(gradients);
  // The last pass of a step is not ended by `end_pass`, so it is not counted yet.
  const double passes =
      options.accumulation == Accumulation::mean ? static_cast<double>(core.passes() + 1) : 1.0;
  core.set_scales(1.0, 1.0 / (options.gradient_predivide_factor * passes));
}

void NamedGradientReducer::State::note_change() {
  if (!std::exchange(changes, true)) ++reduction;
}

void NamedGradientReducer::State::reduce(Gradients gradients) {
  if (!core.active()) core.begin(/*reducing=*/true);
  list(std::move(gradients));
  // All are submitted before the first wait, so that they travel together.
  core.submit_rest();
  core.finish();
  clear();
  ++reduction;
  changes = false;
  try {
    core.rethrow();
  } catch (...) {
    note_change();
    throw;
  }
}

// Returns whether some of what was dropped had been submitted.
bool NamedGradientReducer::State::drop_before_join() {
  if (synchronized || !core.step().is_before_join()) return false;
  const bool submitted = core.drop_before_join() == ReductionCore::Cut::operations;
  clear();
  return submitted;
}

void NamedGradientReducer::State::clear() {
  std::fill(ready.begin(), ready.end(), false);
  source.tensors.clear();
  core.forget_passes();
}

void NamedGradientReducer::State::drop_step() {
  clear();
  synchronized = false;
  note_change();
}

void NamedGradientReducer::State::end_step() {
  drop_step();
  core.end_step();
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
  state.drop_before_join();
  const std::size_t position = found->second;
  if (state.ready[position])
    throw InvalidArgument(fmt::format("{}: '{}' was already ready in this pass", subject, name),
                          name);
  const bool may_submit = state.takes_part && state.core.in_last_pass();
  if (may_submit && state.source.tensors.empty()) {
    Gradients all = gradients();
    state.require_same(all);
    state.require_disjoint(all);
    state.list(std::move(all));
  }
  state.ready[position] = true;
  state.note_change();
  if (!may_submit) return;
  if (!state.core.active()) state.core.begin(/*reducing=*/true);
  state.core.ready(position);
}

void NamedGradientReducer::end_pass() {
  State& state = *state_;
  state.require_not_synchronized("end_pass()");
  state.drop_before_join();
  if (state.core.in_last_pass())
    throw InvalidArgument(
        fmt::format("{}: a step has {} backward passes, and this is the last: call step()", subject,
                    state.options.backward_passes_per_step));
  state.note_change();
  state.core.begin(/*reducing=*/false);
  state.core.end_pass();
  std::fill(state.ready.begin(), state.ready.end(), false);
}

std::int64_t NamedGradientReducer::reduce(const Gradients& gradients) {
  State& state = *state_;
  state.require_not_synchronized("reduce()");
  state.require_same(gradients);
  if (state.drop_before_join()) StepNumber::refuse_cut();
  state.require_in_place(gradients);
  state.require_disjoint(gradients);
  state.reduce(gradients);
  return state.reduction;
}

void NamedGradientReducer::synchronize(const Gradients& gradients) {
  state_->require_not_synchronized("synchronize()");
  reduce(gradients);
  state_->synchronized = true;
}

bool NamedGradientReducer::synchronized() const { return state_->synchronized; }

void NamedGradientReducer::require_current(std::int64_t reduction, const char* call) const {
  const State& state = *state_;
  if (!state.changes && reduction == state.reduction) return;
  throw InvalidArgument(
      fmt::format("{}: {} with gradients of an earlier reduce(). Gradients have changed since, so "
                  "they are not reduced: call reduce() again",
                  subject, call));
}

double NamedGradientReducer::clip(const Gradients& gradients, double max_norm) {
  const State& state = *state_;
  if (!(max_norm > 0.0))
    throw InvalidArgument(
        fmt::format("{}: clip_grad_norm to {}, which must be positive", subject, max_norm));
  double norm = norm_of(gradients, "clip_grad_norm");
  // The gradients are equal on all ranks, but ranks may sum them with different instruction sets.
  // The maximum keeps the scaled gradients equal bit for bit.
  if (state.takes_part)
    allreduce(norm, {.name = fmt::format("{}(norm)", state.core.number()),
                     .op = ReduceOp::max,
                     .process_set = state.options.process_set});
  constexpr double margin = 1e-6;  // as in LibTorch
  const double factor = max_norm / (norm + margin);
  if (factor < 1.0 || std::isnan(factor)) multiply(gradients, factor);
  return norm;
}

void NamedGradientReducer::discard(const std::function<Gradients()>& gradients) {
  state_->drop_before_join();
  if (!state_->synchronized) {
    // Also if nothing was submitted here: other ranks may have begun the step.
    Gradients all = gradients();
    state_->require_same(all);
    // Also if a submitted gradient has moved: the other ranks wait for this rank's other gradients,
    // and what is dropped may be anywhere.
    state_->reduce(std::move(all));
  }
  state_->drop_step();
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
