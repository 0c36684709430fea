// SPDX-License-Identifier: Apache-2.0
// The shards of a custom optimizer's gradients and parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "training/optimizer/named_gradients.hpp"
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

}  // namespace

Future<void> scatter(const std::vector<std::size_t>& slots, const std::vector<Shard>& shards,
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

}  // namespace kolo::internal

namespace kolo::detail {

using namespace internal;

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
