// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/parameter_shards.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/types.hpp"
#include "torch/optimizer/optimizer_kinds.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {
namespace {

// Divides the state of a whole parameter, if there is any: this rank's part becomes the state of
// the shard. Throws InvalidArgument for an optimizer whose class optimizer_kinds.hpp does not list.
void divide_state(::torch::optim::Optimizer& optimizer, const ParameterShard& shard) {
  auto& states = optimizer.state();
  const auto found = states.find(key_of(states, shard.whole));
  if (found == states.end()) return;
  const at::NoGradGuard no_grad;
  const auto divide = [&](auto kind) {
    using State = typename decltype(kind)::State;
    auto state = std::make_unique<State>(dynamic_cast<const State&>(*found->second));
    visit_each(*state, [&](const char*, auto& value) {
      if constexpr (std::same_as<std::decay_t<decltype(value)>, ::torch::Tensor>) {
        if (!value.defined()) return;
        ::torch::Tensor whole = at::empty_like(shard.whole, value.options());
        whole.copy_(value);
        value = shard.shard_of(whole).clone();
      }
    });
    states.erase(found);
    states[key_of(states, shard.shard)] = std::move(state);
  };
  if (!with_kind(optimizer, divide))
    throw InvalidArgument(
        "ShardedOptimizer: it cannot divide the state of an optimizer of this class. Construct it "
        "before the first step");
}

}  // namespace

::torch::Tensor elements_in_memory(const ::torch::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

::torch::Tensor own_tensor(const ::torch::Tensor& view) {
  const at::NoGradGuard no_grad;
  ::torch::Tensor own = at::empty({0}, view.options().requires_grad(false));
  return own.set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
}

::torch::Tensor ParameterShard::shard_of(const ::torch::Tensor& tensor) const {
  return elements_in_memory(tensor).narrow(0, begin, size);
}

ParameterShard& ParameterShards::of_whole(const ::torch::Tensor& whole) {
  return shards_[by_whole_.at(whole.unsafeGetTensorImpl())];
}

const ParameterShard* ParameterShards::of_shard(const ::torch::Tensor& shard) const {
  const auto found = by_shard_.find(shard.unsafeGetTensorImpl());
  return found == by_shard_.end() ? nullptr : &shards_[found->second];
}

ParameterShard& ParameterShards::add(const ::torch::Tensor& whole, const std::string& name) {
  const auto known = by_whole_.find(whole.unsafeGetTensorImpl());
  if (known != by_whole_.end()) return shards_[known->second];
  require_supported(whole, name);
  if (!whole.is_non_overlapping_and_dense())
    throw InvalidArgument(
        "'" + name + "': " + describe(whole) +
            " is not dense in memory, which ShardedOptimizer requires; make it contiguous",
        name);
  if (!shards_.empty() && shards_.front().whole.device() != whole.device())
    throw InvalidArgument("'" + name + "' is on " + whole.device().str() + ", but '" +
                              names_.front() + "' is on " + shards_.front().whole.device().str() +
                              ". The parameters of a ShardedOptimizer must be on one device",
                          name);
  ParameterShard shard{.whole = whole,
                       .shard = {},
                       .elements = whole.numel(),
                       .lengths = whole.sizes().vec(),
                       .strides = whole.strides().vec()};
  shard.begin = position_.begin(shard.elements);
  shard.size = position_.size(shard.elements);
  shard.shard = shard.shard_of(whole);
  by_whole_.emplace(whole.unsafeGetTensorImpl(), shards_.size());
  by_shard_.emplace(shard.shard.unsafeGetTensorImpl(), shards_.size());
  names_.push_back(name);
  return shards_.emplace_back(std::move(shard));
}

// Compares shape and strides. Strides of dimensions of length 1 do not matter.
bool ParameterShards::is_laid_out_as_before(const ParameterShard& shard) {
  if (shard.whole.sizes() != at::IntArrayRef(shard.lengths)) return false;
  for (std::size_t i = 0; i < shard.lengths.size(); ++i)
    if (shard.lengths[i] != 1 &&
        shard.whole.stride(static_cast<std::int64_t>(i)) != shard.strides[i])
      return false;
  return true;
}

void ParameterShards::follow_memory() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    ParameterShard& shard = shards_[i];
    const ::torch::Tensor& whole = shard.whole;
    if (!is_laid_out_as_before(shard) || whole.scalar_type() != shard.shard.scalar_type() ||
        whole.device() != shard.shard.device())
      throw InvalidArgument("'" + names_[i] + "' is " + describe(shard.whole) +
                                " now. A ShardedOptimizer cannot follow that: convert a module "
                                "before the optimizer is constructed",
                            names_[i]);
    const ::torch::Tensor now = shard.shard_of(whole);
    if (now.data_ptr() != shard.shard.data_ptr()) shard.shard.set_data(now);
  }
}

void ParameterShards::release(const ::torch::Tensor& whole, const ::torch::Tensor& empty) {
  const at::NoGradGuard no_grad;
  const std::size_t index = by_whole_.extract(whole.unsafeGetTensorImpl()).mapped();
  by_whole_.emplace(empty.unsafeGetTensorImpl(), index);
  const ::torch::Tensor shard = shards_[index].shard;  // its address names its state
  shard.mutable_grad().reset();
  shard.set_data(empty);
  shards_[index] = {.whole = empty,
                    .shard = shard,
                    .lengths = empty.sizes().vec(),
                    .strides = empty.strides().vec(),
                    .retired = true,
                    .released = true};
}

// By the optimizer's own groups: if the program has erased a parameter from one, the places of the
// whole parameters after it are others.
void ParameterShards::note_retired(const ParameterGroups& groups) {
  std::unordered_set<const c10::TensorImpl*> current;
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& shard) {
    current.insert(shard.unsafeGetTensorImpl());
  });
  for (ParameterShard& shard : shards_)
    shard.retired = !current.contains(shard.shard.unsafeGetTensorImpl());
}

void ParameterShards::adopt(::torch::optim::Optimizer& optimizer, const ParameterNames& names) {
  for (const ParameterShard& shard : shards_)
    if (shard.released) optimizer.state().erase(key_of(optimizer.state(), shard.shard));
  follow_memory();
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto& tensors = groups[i].params();
    if (whole_groups_.size() == i) whole_groups_.emplace_back(std::vector<::torch::Tensor>{});
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      if (!tensors[j].defined() || of_shard(tensors[j]) != nullptr) continue;
      const ParameterShard& shard = add(tensors[j], names.of(tensors[j], i, j));
      divide_state(optimizer, shard);
      // The whole parameter keeps its position, which is its name if it was not given one.
      auto& wholes = whole_groups_[i].params();
      if (wholes.size() <= j) wholes.resize(j + 1);
      wholes[j] = std::exchange(tensors[j], shard.shard);
    }
  }
  note_retired(groups);
}

}  // namespace kolo::internal
