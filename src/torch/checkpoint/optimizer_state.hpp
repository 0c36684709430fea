// SPDX-License-Identifier: Apache-2.0
// The state of LibTorch's optimizers by PyTorch's names.
//
// Tensors: "state.<number of the parameter>.<name>", such as "state.0.exp_avg". Metadata: "class",
// and "param_groups", the options of the groups in JSON as in Python's state_dict().
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <optional>
#include <string>

#include "kolo/state_dict.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

struct ParameterShard;

/// Returns the shard that an optimizer has in place of a parameter; null for a whole parameter.
using ShardFinder = std::function<const ParameterShard*(const ::torch::Tensor&)>;

/// Why a safetensors file cannot hold the optimizer's state; "" if it can. There are two reasons. A
/// class other than SGD, Adam, AdamW, RMSprop, Adagrad and the Distributed- or ShardedOptimizer of
/// these may have state of its own. Or a tensor has a dtype that Kolo lacks.
[[nodiscard]] std::string obstacle_to_saving(const ::torch::optim::Optimizer& optimizer);

/// Returns the optimizer's state, not copied; nothing if there is an obstacle. `stored` replaces
/// each tensor of the state by the tensor to save, or omits it by returning an undefined one.
[[nodiscard]] std::optional<StateView> save_optimizer(
    const ::torch::optim::Optimizer& optimizer,
    const std::function<::torch::Tensor(const ::torch::Tensor& parameter,
                                        const ::torch::Tensor& state)>& stored = {});

/// True for the bytes of a LibTorch archive, which holds tensors that a safetensors file cannot.
/// Archives are zip files.
[[nodiscard]] bool is_archive(const StateView& state);

/// Loads a state. Throws InvalidArgument, with nothing changed, unless the state is that of an
/// optimizer of the same class, with as many groups, and parameters of the same shapes. With
/// `shards`, the state holds full tensors, and this rank loads its shards of them.
void load_optimizer(const StateView& state, ::torch::optim::Optimizer& optimizer,
                    const ShardFinder& shards = {});

/// The metadata entry of a state that has only the shards of one rank.
constexpr const char* shard_place_entry = "kolo.shard";
/// The metadata entry that describes the whole parameters of such a state, as JSON.
constexpr const char* shard_parameters_entry = "kolo.shard_parameters";
[[nodiscard]] inline std::string shard_place_text(ShardPosition position) {
  return std::to_string(position.index + 1) + " of " + std::to_string(position.ranks);
}

/// Throws InvalidArgument unless a state's shards, `there`, are the same as `here`, those of the
/// optimizer that loads it. Each is a `shard_place_text`, or "" for the full state.
void require_same_place(const std::string& there, const std::string& here);

}  // namespace kolo::internal
