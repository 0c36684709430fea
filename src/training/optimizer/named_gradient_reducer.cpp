// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a custom optimizer, divides gradients and parameters into shards, and
// broadcasts parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "training/optimizer/gradient_norm.hpp"
#include "training/optimizer/named_gradient_reducer_state.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {
namespace {

TensorView elements_of(const TensorView& tensor, std::int64_t begin, std::int64_t end) {
  return {static_cast<std::byte*>(tensor.data()) + begin * signed_size_of(tensor.dtype()),
          Shape(end - begin), tensor.dtype(), tensor.device()};
}

TensorView shard_of(const TensorView& tensor, const Shard& shard) {
  return elements_of(tensor, shard.begin, shard.end);
}

// Throws unless both lists have the same names, dtypes and numbers of elements.
void require_alike(const std::vector<NamedTensor>& gradients,
                   const std::vector<NamedTensor>& parameters) {
  const auto alike = [](const NamedTensor& a, const NamedTensor& b) {
    return a.name == b.name && a.tensor.dtype() == b.tensor.dtype() &&
           a.tensor.elements() == b.tensor.elements();
  };
  if (!std::ranges::equal(gradients, parameters, alike))
    throw InvalidArgument(
        "ShardedOptimizer: parameters() and gradients() must have the same names, dtypes and "
        "numbers of elements in the same order");
}

}  // namespace

Future<void> scatter(std::span<const std::size_t> slots, const std::vector<Shard>& shards,
                     const std::vector<NamedTensor>& tensors,
                     const detail::GroupedAllreduceCall& call) {
  std::vector<ConstTensorView> inputs;
  std::vector<TensorView> outputs;
  for (const std::size_t slot : slots) {
    const TensorView& tensor = tensors[slot].tensor;
    inputs.emplace_back(elements_of(tensor, 0, tensor.elements()));
    outputs.push_back(shard_of(tensor, shards[slot]));
  }
  return detail::call_async(
      detail::ReducescatterCall{inputs, outputs, reducescatter_options(call.options), call.step});
}

}  // namespace kolo::internal

namespace kolo::detail {

using namespace internal;

NamedGradientReducer::NamedGradientReducer(const Gradients& gradients,
                                           const DistributedOptimizerOptions& options,
                                           std::function<Gradients()> parameters)
    : state_(std::make_unique<State>(gradients, options, std::move(parameters), std::nullopt)) {}

NamedGradientReducer::NamedGradientReducer(const Gradients& gradients,
                                           const DistributedOptimizerOptions& options,
                                           Sharding sharding, std::function<Gradients()> parameters)
    : state_((require_alike(gradients, parameters()),
              std::make_unique<State>(gradients, options, std::move(parameters), sharding))) {}

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
    // Gradients are also reduced if a submitted one has moved: the result is dropped anyway, and
    // the other ranks wait for the rest of this rank's gradients.
    state_->reduce(std::move(all));
  }
  state_->drop_step();
}

void NamedGradientReducer::end_step() { state_->end_step(); }

void NamedGradientReducer::rejoin(const Gradients& gradients) { state_->rejoin(gradients); }

void NamedGradientReducer::State::divide(const Gradients& gradients) {
  const ShardPosition position = ShardPosition::in(options.process_set);
  elements.clear();
  shards.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::int64_t count = gradients[i].tensor.elements();
    elements.push_back(count);
    shards.push_back({i, position.begin(count), position.end(count)});
  }
  if (takes_part && sharding == Sharding::state_and_gradients) storage.scattered = shards;
}

NamedGradientReducer::Gradients NamedGradientReducer::State::shards_of(
    const Gradients& gradients) const {
  Gradients all;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    all.push_back({gradients[i].name, shard_of(gradients[i].tensor, shards[i])});
  return all;
}

std::span<const Shard> NamedGradientReducer::shards() const { return state_->shards; }

void NamedGradientReducer::require_all_ranks() {
  State& state = *state_;
  if (!state.takes_part || state.sharding != Sharding::state) return;
  try {
    internal::require_all_ranks(fmt::format("{}(parameters)", state.reducer.number()),
                                state.options.process_set);
  } catch (...) {
    state.unstepped = false;  // the other ranks got the same error
    throw;
  }
}

// A program may drop a step without a call. So the next reduction first gathers nothing, with
// `parameters` empty: if other ranks have stepped and gather parameters, all ranks get Mismatch.
void NamedGradientReducer::gather(const Gradients& parameters) {
  State& state = *state_;
  if (!parameters.empty()) state.require_same(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].tensor.elements() != state.elements[i])
      throw InvalidArgument(
          fmt::format("ShardedOptimizer: the parameter '{}' has {} elements, and had {} at "
                      "construction",
                      parameters[i].name, parameters[i].tensor.elements(), state.elements[i]),
          parameters[i].name);
  state.unstepped = false;
  if (!state.takes_part) return;
  const std::string name = fmt::format("{}(parameters)", state.reducer.number());
  if (parameters.empty()) {
    try {
      return gather_nothing(name, state.options.process_set);
    } catch (...) {
      state.drop_step();
      throw;
    }
  }
  ShardGather gather(state.options.process_set);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorView& whole = parameters[i].tensor;
    gather.add(
        shard_of(whole, state.shards[i]), elements_of(whole, 0, whole.elements()),
        [memory = std::vector<std::byte>(), whole]() mutable -> void* {
          if (whole.device().type != DeviceType::cpu) return nullptr;
          memory.resize(static_cast<std::size_t>(whole.elements() * signed_size_of(whole.dtype())));
          return memory.data();
        });
  }
  gather.run(name);
}

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
