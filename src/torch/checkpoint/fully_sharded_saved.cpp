// SPDX-License-Identifier: Apache-2.0
// The whole state of a fully sharded model, and loading it into shards.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/checkpoint/shard_collector.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "torch/sharded/fully_sharded_state.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr int all_ranks_get_it = -1;

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("FullySharded::load_full_state: the state " + why);
}

void require_shards(const ::torch::optim::Optimizer& optimizer, const ShardGroup& group) {
  for (const ParameterShard* shard :
       shards_by_number(optimizer, [&](const auto& tensor) { return group.of_shard(tensor); }))
    if (shard == nullptr)
      throw InvalidArgument(
          "FullySharded: the optimizer has a parameter that is not one of parameters()");
}

void require_not_held(bool holds_all) {
  if (holds_all)
    throw InvalidArgument(
        "FullySharded: a state cannot be loaded while a guard of gather() holds the parameters "
        "whole: they would stay the old ones");
}

std::vector<const ParameterShard*> pointers(const std::vector<ParameterShard>& shards) {
  std::vector<const ParameterShard*> all;
  for (const ParameterShard& shard : shards) all.push_back(&shard);
  return all;
}

// Collective. `value` is this rank's elements of a tensor that is laid out like the parameter.
::torch::Tensor gather_whole(const ::torch::Tensor& value, const ParameterShard& shard,
                             const std::string& operation, const ProcessSet& set) {
  const auto options = value.options().requires_grad(false);
  const ::torch::Tensor whole = at::empty({shard.elements}, options);
  ::torch::Tensor elsewhere;
  ShardGather gather(set);
  gather.add(view_of(value.detach()), view_of(whole), [&] {
    elsewhere = at::empty_like(whole);
    return elsewhere.data_ptr();
  });
  gather.run(operation);
  return whole.as_strided(shard.lengths, shard.strides);
}

// Reads elements of a tensor in row-major order.
::torch::Tensor read(const TensorSource& source, std::int64_t begin, std::int64_t count) {
  ::torch::Tensor elements =
      at::empty({count}, at::TensorOptions().dtype(torch_dtype(source.dtype).value()));
  const auto bytes = static_cast<std::size_t>(elements.element_size());
  if (count > 0)
    source.read(static_cast<std::size_t>(begin) * bytes,
                {static_cast<char*>(elements.data_ptr()), static_cast<std::size_t>(count) * bytes});
  return elements;
}

// This rank's elements, which are in the order of the parameter's memory.
::torch::Tensor read_shard(const TensorSource& source, const ShardedUnit& unit, std::size_t index) {
  const std::int64_t all = unit.elements()[index];
  const std::int64_t begin = unit.position().begin(all);
  const std::int64_t size = unit.position().size(all);
  const ::torch::Tensor& whole = unit.whole(index);
  if (unit.is_row_major(index)) return read(source, begin, size);
  const ::torch::Tensor row_major = read(source, 0, all).view(whole.sizes());
  ::torch::Tensor ordered = unit.shaped(index, at::empty({all}, row_major.options()));
  ordered.copy_(row_major);
  return elements_in_memory(ordered).narrow(0, begin, size);
}

}  // namespace

StateDict FullySharded::full_state() const { return full_state(all_ranks_get_it); }

StateDict FullySharded::full_state(int root) const {
  const ProcessSet& set = state_->options.process_set;
  if (root != all_ranks_get_it) require_root("full_state", root, {});
  if (root != all_ranks_get_it && state_->is_of_other_copy(root)) return {};
  if (root != all_ranks_get_it) require_root("full_state", root, set);
  const bool gets_it = root == all_ranks_get_it || rank() == root;
  const at::NoGradGuard no_grad;
  NamedParameters tensors;
  for (std::size_t i = 0; i < state_->places.size(); ++i) {
    const ParameterShard& shard = state_->group->shards[i];
    const ::torch::Tensor whole = gather_whole(shard.shard, shard, state_->prefix + "state", set);
    if (!gets_it) continue;
    const ::torch::Tensor on_host = whole.cpu();
    for (const std::string& name : state_->places[i].names) tensors.emplace_back(name, on_host);
  }
  if (!gets_it) return {};
  for (const auto& buffer : state_->model.named_buffers())
    if (buffer.value().defined()) tensors.emplace_back(buffer.key(), buffer.value());
  return kolo::state(tensors);
}

void FullySharded::load_full_state(const StateView& state) {
  require_not_held(state_->schedule.holds_all());
  if (is_archive(state)) refuse("is a LibTorch archive, which has no tensors by name");
  std::vector<std::pair<const State::Place*, const TensorSource*>> parameters;
  std::set<std::string> known;
  for (const State::Place& place : state_->places) {
    const auto name = std::ranges::find_if(
        place.names, [&](const std::string& one) { return state.tensors.contains(one); });
    if (name == place.names.end()) refuse("lacks '" + place.names.front() + "'");
    const TensorSource& source = state.tensors.at(*name);
    const at::IntArrayRef sizes = state_->units[place.unit]->whole(place.index).sizes();
    if (!std::ranges::equal(sizes, source.shape.lengths()))
      refuse("has '" + *name + "' in another shape than " +
             state_->units[place.unit]->describe(place.index));
    if (!torch_dtype(source.dtype)) refuse("has '" + *name + "' of a dtype that LibTorch lacks");
    parameters.emplace_back(&place, &source);
    known.insert(place.names.begin(), place.names.end());
  }
  NamedParameters buffers;
  StateView of_buffers;
  for (const auto& buffer : state_->model.named_buffers()) {
    if (!buffer.value().defined()) continue;
    buffers.emplace_back(buffer.key(), buffer.value());
    known.insert(buffer.key());
    if (const auto found = state.tensors.find(buffer.key()); found != state.tensors.end())
      of_buffers.tensors.insert(*found);
  }
  for (const auto& [name, source] : state.tensors)
    if (!known.contains(name)) refuse("has '" + name + "', which the model lacks");
  load_state(buffers, of_buffers);
  const at::NoGradGuard no_grad;
  for (const auto& [place, source] : parameters) {
    const ShardedUnit& unit = *state_->units[place->unit];
    ::torch::Tensor shard = unit.shard(place->index);
    shard.copy_(read_shard(*source, unit, place->index));
  }
}

StateDict FullySharded::full_state(const ::torch::optim::Optimizer& optimizer, int root) const {
  const ProcessSet& set = state_->options.process_set;
  require_root("full_state", root, {});
  if (state_->is_of_other_copy(root)) return {};
  require_root("full_state", root, set);
  if (const std::string why = obstacle_to_saving(optimizer); !why.empty())
    throw InvalidArgument("full_state: the optimizer's state cannot be saved: " + why);
  require_shards(optimizer, *state_->group);
  const bool gets_it = rank() == root;
  const at::NoGradGuard no_grad;
  const auto whole_of = [&](const ::torch::Tensor& tensor, const ::torch::Tensor& value) {
    const ParameterShard& shard = *state_->group->of_shard(tensor);
    const ::torch::Tensor whole = gather_whole(value, shard, state_->prefix + "state", set);
    return gets_it ? whole : ::torch::Tensor();
  };
  const std::optional<StateView> saved = save_optimizer(optimizer, whole_of);
  return gets_it ? saved.value().copy() : StateDict();
}

void FullySharded::load_full_state(const StateView& state,
                                   ::torch::optim::Optimizer& optimizer) const {
  require_shards(optimizer, *state_->group);
  load_optimizer(state, optimizer,
                 [this](const auto& tensor) { return state_->group->of_shard(tensor); });
}

StateView FullySharded::state_view() const {
  if (!state_->group->saves) return {};
  NamedParameters shards;
  for (const auto& [name, shard] : named_parameters()) shards.emplace_back(name, shard.detach());
  StateView view = kolo::state_view(shards);
  view.metadata[shard_place_entry] = shard_place_text(state_->group->position);
  view.metadata[shard_parameters_entry] = describe(pointers(state_->group->shards));
  return view;
}

void FullySharded::load_sharded_state(const std::vector<StateView>& shards) {
  require_not_held(state_->schedule.holds_all());
  const auto read = [&] {
    std::vector<std::string> names;
    for (const State::Place& place : state_->places) names.push_back(place.names.front());
    const std::string place = shard_place_text(state_->group->position);
    NamedParameters into;
    for (const auto& [name, shard] : named_parameters()) into.emplace_back(name, shard.detach());
    load_state(into, collect_model_shards(shards, pointers(state_->group->shards), names, place));
  };
  share_failure(state_->prefix + "load", "FullySharded::load_sharded_state: ", read,
                state_->options.process_set);
}

void FullySharded::load_sharded_state(const std::vector<StateView>& shards,
                                      ::torch::optim::Optimizer& optimizer) const {
  const auto read = [&] {
    require_shards(optimizer, *state_->group);
    const auto find = [&](const ::torch::Tensor& tensor) {
      return state_->group->of_shard(tensor);
    };
    load_optimizer(collect_optimizer_shards(shards, shards_by_number(optimizer, find),
                                            shard_place_text(state_->group->position)),
                   optimizer);
  };
  share_failure(state_->prefix + "load", "FullySharded::load_sharded_state: ", read,
                state_->options.process_set);
}

}  // namespace kolo
