// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a custom optimizer, and broadcasts its parameters.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"
#include "training/optimizer/gradient_norm.hpp"
#include "training/optimizer/named_gradients.hpp"

namespace kolo::detail {

using namespace internal;
NamedGradientReducer::NamedGradientReducer(const Gradients& gradients,
                                           const DistributedOptimizerOptions& options)
    : state_(std::make_unique<State>(gradients, options, std::nullopt)) {}

NamedGradientReducer::NamedGradientReducer(const Gradients& gradients,
                                           const DistributedOptimizerOptions& options,
                                           Sharding sharding, const Gradients& parameters)
    : state_((require_alike(gradients, parameters),
              std::make_unique<State>(gradients, options, sharding))) {}

NamedGradientReducer::NamedGradientReducer(NamedGradientReducer&&) noexcept = default;
NamedGradientReducer& NamedGradientReducer::operator=(NamedGradientReducer&&) noexcept = default;
NamedGradientReducer::~NamedGradientReducer() = default;

void NamedGradientReducer::ready(const std::string& name,
                                 const std::function<Gradients()>& gradients) {
  State& state = *state_;
  const auto found = state.position_of.find(name);
  if (found == state.position_of.end())
    throw InvalidArgument(fmt::format("{}: there is no gradient '{}'", state.subject(), name),
                          name);
  state.require_not_synchronized(fmt::format("ready('{}')", name));
  state.drop_before_join();
  const std::size_t position = found->second;
  if (state.ready[position])
    throw InvalidArgument(
        fmt::format("{}: '{}' was already ready in this pass", state.subject(), name), name);
  // After a step that was dropped without a call, a gather comes before the next reduction. It
  // waits for the other ranks, which may call `ready` later or not at all, so it is left to
  // `reduce`, and nothing is submitted here.
  const bool may_submit = state.takes_part && state.reducer.in_last_pass() && !state.unstepped;
  if (may_submit && state.storage.tensors.empty()) {
    Gradients all = gradients();
    state.require_same(all);
    state.require_disjoint(all);
    state.list(std::move(all));
  }
  state.ready[position] = true;
  state.note_change();
  if (!may_submit) return;
  if (!state.reducer.active()) state.reducer.begin(/*reducing=*/true);
  state.reducer.ready(position);
}

void NamedGradientReducer::end_pass() {
  State& state = *state_;
  state.require_not_synchronized("end_pass()");
  state.drop_before_join();
  if (state.reducer.in_last_pass())
    throw InvalidArgument(
        fmt::format("{}: a step has {} backward passes, and this is the last: call step()",
                    state.subject(), state.options.backward_passes_per_step));
  state.note_change();
  state.reducer.begin(/*reducing=*/false);
  state.reducer.end_pass();
  std::fill(state.ready.begin(), state.ready.end(), false);
}

std::int64_t NamedGradientReducer::reduce(const Gradients& gradients) {
  State& state = *state_;
  state.require_not_synchronized("reduce()");
  state.require_same(gradients);
  if (state.drop_before_join()) StepNumber::refuse_cut();
  state.require_in_place(gradients);
  state.require_disjoint(gradients);
  if (state.unstepped) gather({});
  state.reduce(gradients);
  state.unstepped = state.sharding.has_value();
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
                  state.subject(), call));
}

double NamedGradientReducer::clip(const Gradients& gradients, double max_norm) {
  const State& state = *state_;
  require_positive("max_norm", max_norm);
  const Gradients own = state.sharding ? state.shards_of(gradients) : gradients;
  const std::string operation = fmt::format("{}(norm)", state.reducer.number());
  double norm = norm_of(own, "clip_grad_norm");
  norm = state.sharding ? join_norms(norm, /*type=*/2.0, operation, state.options.process_set)
                        : agree_on_norm(norm, operation, state.options.process_set);
  if (const auto factor = clip_factor(max_norm, norm)) multiply(own, *factor);
  return norm;
}

void NamedGradientReducer::discard(const std::function<Gradients()>& gradients) {
  state_->drop_before_join();
  if (state_->unstepped) gather({});
  if (!state_->synchronized) {
    // Gradients are reduced even if this rank has submitted none: other ranks may have begun the
    // step.
    Gradients all = gradients();
    state_->require_same(all);
    // Gradients are reduced even if a submitted one has moved, for it is dropped, and the other
    // ranks wait for the rest of this rank's gradients.
    state_->reduce(std::move(all));
  }
  state_->drop_step();
}

void NamedGradientReducer::end_step() { state_->end_step(); }

void NamedGradientReducer::rejoin(const Gradients& gradients) { state_->rejoin(gradients); }

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
