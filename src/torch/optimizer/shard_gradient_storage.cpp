// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/shard_gradient_storage.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "torch/tensor_view.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

ShardGradientStorage::ShardGradientStorage(const DistributedOptimizerOptions& options,
                                           std::shared_ptr<ParameterShards> shards)
    : TorchGradientStorage(options, sharded_subject), shards_(std::move(shards)) {}

ShardGradientStorage::State& ShardGradientStorage::state_of(std::size_t slot) {
  while (states_.size() <= slot) states_.emplace_back();
  return states_[slot];
}

const ShardGradientStorage::State* ShardGradientStorage::find_state(std::size_t slot) const {
  return slot < states_.size() ? &states_[slot] : nullptr;
}

// Compares memory, because a module that zeroes its gradients may replace the tensor by another one
// with the same memory.
bool ShardGradientStorage::has_placeholder(std::size_t slot) const {
  const ::torch::Tensor& gradient = parameters()[slot].tensor.grad();
  const State* state = find_state(slot);
  return state != nullptr && state->left == Left::placeholder && gradient.defined() &&
         gradient.layout() == at::kStrided &&
         gradient.storage().unsafeGetStorageImpl() ==
             state->placeholder.storage().unsafeGetStorageImpl();
}

bool ShardGradientStorage::has_gradient(std::size_t slot) const {
  return parameters()[slot].tensor.grad().defined() && !has_placeholder(slot);
}

// Repeats for the gradient of the shard what the program has done to the whole gradient. The
// program may have zeroed or removed the whole gradient through its module, which does not know the
// shards, or may have set another whole gradient.
void ShardGradientStorage::sync_with_module(std::size_t slot) {
  const ::torch::Tensor& whole = parameters()[slot].tensor;
  ::torch::Tensor& sum = shards_->of_whole(whole).shard.mutable_grad();
  if (state_of(slot).left == Left::nothing || !sum.defined()) return;
  if (!whole.grad().defined()) {
    sum.reset();
  } else if (has_changed(slot)) {
    sync_changed(whole.device());
  } else if (state_of(slot).left == Left::placeholder && !has_placeholder(slot)) {
    sum.reset();  // the program has set another gradient
  }
}

// True if the program has changed the tensor that this object has left, perhaps to zeros.
bool ShardGradientStorage::has_changed(std::size_t slot) const {
  const State* state = find_state(slot);
  const ::torch::Tensor& whole = parameters()[slot].tensor;
  if (state == nullptr || !whole.grad().defined() || state->version == unknown ||
      !shards_->of_whole(whole).shard.grad().defined())
    return false;
  return (state->left == Left::local_gradient || has_placeholder(slot)) &&
         whole.grad()._version() != state->version;
}

// All elements of a placeholder are one number. If it has changed, the program has zeroed the
// gradient, or filled it with a number of its own.
void ShardGradientStorage::sync_changed(const ::torch::Device& device) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> changed;
  std::vector<::torch::Tensor> numbers;
  for (std::size_t slot = 0; slot < parameters().size(); ++slot) {
    if (parameters()[slot].tensor.device() != device || !has_changed(slot)) continue;
    const ::torch::Tensor& gradient = parameters()[slot].tensor.grad();
    const bool is_one_number = has_placeholder(slot) && gradient.numel() > 0;
    changed.push_back(slot);
    numbers.push_back(is_one_number ? gradient.flatten()[0] : gradient);
  }
  const std::vector<bool> zero = are_zero(numbers);
  for (std::size_t i = 0; i < changed.size(); ++i) {
    State& state = state_of(changed[i]);
    ::torch::Tensor& gradient = parameters()[changed[i]].tensor.mutable_grad();
    ::torch::Tensor& sum = shards_->of_whole(parameters()[changed[i]].tensor).shard.mutable_grad();
    state.version = gradient._version();
    if (zero[i]) {
      sum.zero_();
    } else if (has_placeholder(changed[i])) {
      gradient = gradient.clone(at::MemoryFormat::Contiguous);
      sum.reset();
    }
  }
}

void ShardGradientStorage::sync_with_module() {
  for (std::size_t slot = 0; slot < parameters().size(); ++slot) sync_with_module(slot);
}

void ShardGradientStorage::take_replaced() {
  const at::NoGradGuard no_grad;
  for (std::size_t slot = 0; slot < parameters().size(); ++slot) {
    if (state_of(slot).left != Left::placeholder || !has_gradient(slot)) continue;
    take_unreduced(slot, /*expected=*/false);
    put_placeholder(slot, std::numeric_limits<double>::quiet_NaN());
  }
}

void ShardGradientStorage::remove_placeholder(std::size_t slot) {
  State& state = state_of(slot);
  ::torch::Tensor& gradient = parameters()[slot].tensor.mutable_grad();
  if (has_placeholder(slot)) gradient.reset();
  state.placeholder.reset();
  state.left = Left::nothing;
}

void ShardGradientStorage::put_placeholder(std::size_t slot, double value) {
  const ::torch::Tensor& whole = parameters()[slot].tensor;
  State& state = state_of(slot);
  state.placeholder =
      own_tensor(at::full({}, value, whole.options().requires_grad(false)).expand(whole.sizes()));
  state.version = state.placeholder._version();
  state.left = Left::placeholder;
  whole.mutable_grad() = state.placeholder;
}

void ShardGradientStorage::release(std::size_t slot) {
  const ::torch::Tensor former = parameters()[slot].tensor;
  state_of(slot) = {};
  TorchGradientStorage::release(slot);
  shards_->release(former, parameters()[slot].tensor);
}

void ShardGradientStorage::make_room(std::size_t slot) {
  sync_with_module(slot);
  remove_placeholder(slot);
}

void ShardGradientStorage::accumulate_locally(std::size_t slot) {
  sync_with_module(slot);
  remove_placeholder(slot);
  state_of(slot).left = Left::local_gradient;
  state_of(slot).version = unknown;
}

void ShardGradientStorage::accumulated_locally(std::size_t slot) {
  state_of(slot).version = parameters()[slot].tensor.grad()._version();
}

void ShardGradientStorage::require_reducible(std::size_t slot, bool /*grouped*/) const {
  if (has_gradient(slot)) require_plain(parameters()[slot]);
}

void ShardGradientStorage::forget() {
  for (Parameter& parameter : parameters()) parameter.waiting = false;
}

void ShardGradientStorage::clear() {
  for (std::size_t slot = 0; slot < parameters().size(); ++slot) {
    parameters()[slot].tensor.mutable_grad().reset();
    state_of(slot).placeholder.reset();
    state_of(slot).left = Left::nothing;
    if (shards_->of_whole(parameters()[slot].tensor).shard.grad().defined())
      put_placeholder(slot, 0.0);
  }
}

int ShardGradientStorage::content(std::size_t slot) const {
  const State* state = find_state(slot);
  const bool any = has_gradient(slot) || (state != nullptr && !state->rounds.empty()) ||
                   shards_->of_whole(parameters()[slot].tensor).shard.grad().defined();
  return any ? 1 : 0;
}

bool ShardGradientStorage::is_waiting(std::size_t slot) const {
  return parameters()[slot].waiting && has_gradient(slot);
}

void ShardGradientStorage::expect(std::size_t slot, int content) {
  if (content > 0 && this->content(slot) == 0) parameters()[slot].expected = takes_part(slot);
}

TensorView ShardGradientStorage::open(std::size_t slot, double factor) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters()[slot];
  const ParameterShard& shard = shards_->of_whole(parameter.tensor);
  ::torch::Tensor gradient;
  parameter.waiting = false;
  if (has_gradient(slot)) {
    gradient = std::exchange(parameter.tensor.mutable_grad(), {});
    state_of(slot).left = Left::nothing;
  } else {
    gradient = at::zeros_like(parameter.tensor);
  }
  if (gradient.layout() == at::kSparse) gradient = gradient.to_dense();
  require_supported(gradient, parameter.name);
  if (!same_layout(gradient, parameter.tensor)) {
    const ::torch::Tensor other = std::exchange(gradient, at::empty_like(parameter.tensor));
    gradient.copy_(other);
  }
  if (factor != 1.0) gradient.mul_(factor);
  state_of(slot).rounds.push_back({gradient, at::zeros({shard.size}, shard.shard.options())});
  return view_of(gradient);
}

// Outside the process set, the shard is the whole gradient.
void ShardGradientStorage::scale(std::size_t slot, double factor) {
  const at::NoGradGuard no_grad;
  if (!has_gradient(slot)) return;
  (void)open(slot, factor);
  Round& round = state_of(slot).rounds.back();
  round.shard = own_tensor(elements_in_memory(round.gradient));
}

void ShardGradientStorage::cancel(std::size_t slot) {
  std::deque<Round>& rounds = state_of(slot).rounds;
  if (rounds.empty()) return;
  parameters()[slot].tensor.mutable_grad() = rounds.back().gradient;
  rounds.pop_back();
}

// Backward may still be computing the gradients on the GPU: the operation waits for the stream that
// is current here, backward's.
Future<void> ShardGradientStorage::submit(std::span<const std::size_t> slots,
                                          const detail::GroupedAllreduceCall& call) {
  std::vector<ConstTensorView> inputs;
  std::vector<TensorView> outputs;
  for (const std::size_t slot : slots) {
    const Round& round = state_of(slot).rounds.back();
    inputs.emplace_back(view_of(elements_in_memory(round.gradient)));
    outputs.push_back(view_of(round.shard));
  }
  return detail::call_async(
      detail::ReducescatterCall{inputs, outputs, reducescatter_options(call.options), call.step});
}

void ShardGradientStorage::completed(std::size_t slot, int round) {
  state_of(slot).rounds.at(static_cast<std::size_t>(round)).gradient.reset();
}

// Operations write to memory that only this object has, so the program's gradients can stay where
// they are. The sum of earlier passes stays until the program zeroes the whole gradient.
void ShardGradientStorage::detach(std::size_t slot) {
  const ::torch::Tensor& whole = parameters()[slot].tensor;
  State& state = state_of(slot);
  const ::torch::Tensor& shard = shards_->of_whole(whole).shard;
  // The other ranks have a gradient, so this rank has one too.
  if (!shard.grad().defined() && !state.rounds.empty())
    shard.mutable_grad() = at::zeros_like(shard);
  if (!shard.grad().defined() || has_placeholder(slot)) return;
  if (!whole.grad().defined())
    return put_placeholder(slot, std::numeric_limits<double>::quiet_NaN());
  state.left = Left::local_gradient;
  state.version = whole.grad()._version();
}

// Fills the gradient of the shard without a reduction: from a whole gradient that the program has
// set itself, such as to zeros, or with zeros if another rank has a gradient (`expected`).
void ShardGradientStorage::take_unreduced(std::size_t slot, bool expected) {
  const ::torch::Tensor& parameter = parameters()[slot].tensor;
  const ParameterShard& shard = shards_->of_whole(parameter);
  ::torch::Tensor& sum = shard.shard.mutable_grad();
  if (has_gradient(slot)) {
    ::torch::Tensor gradient = std::exchange(parameter.mutable_grad(), {});
    if (gradient.layout() == at::kSparse) gradient = gradient.to_dense();
    ::torch::Tensor whole = at::empty_like(parameter);
    whole.copy_(gradient);
    sum = shard.shard_of(whole).clone();
  } else if (expected) {
    sum = at::zeros_like(shard.shard);
  }
}

void ShardGradientStorage::close(std::size_t slot, bool keep) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters()[slot];
  const std::deque<Round> rounds = std::exchange(state_of(slot).rounds, {});
  const bool expected = std::exchange(parameter.expected, false);
  if (!keep) return;
  const ::torch::Tensor& shard = shards_->of_whole(parameter.tensor).shard;
  ::torch::Tensor& sum = shard.mutable_grad();
  for (const Round& round : rounds) {
    if (sum.defined()) {
      sum.add_(round.shard);
    } else {
      sum = round.shard;
    }
  }
  if (rounds.empty() && !sum.defined()) take_unreduced(slot, expected);
  if (sum.defined() && !has_gradient(slot))
    put_placeholder(slot, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace kolo::internal
