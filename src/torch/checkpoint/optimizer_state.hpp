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

namespace kolo::internal {

class ParameterShards;

/// Why a safetensors file cannot hold the optimizer's state: "", or its class is other than SGD,
/// Adam, AdamW, RMSprop, Adagrad and the Distributed- or ShardedOptimizer of these, and may have
/// state of its own, or a tensor has a dtype that Kolo lacks.
[[nodiscard]] std::string obstacle_to_saving(const ::torch::optim::Optimizer& optimizer);

/// The bytes of a safetensors file; nothing if there is an obstacle. In place of each tensor of the
/// state, what `stored` returns for it is saved; nothing if that is undefined.
[[nodiscard]] std::optional<std::string> save_optimizer(
    const ::torch::optim::Optimizer& optimizer,
    const std::function<::torch::Tensor(const ::torch::Tensor& parameter,
                                        const ::torch::Tensor& state)>& stored = {});

/// Throws InvalidArgument for bytes that are not those of an optimizer of this class, with as many
/// groups and parameters of the same shapes; nothing has changed then. With `shards`, the bytes
/// hold full tensors, and this rank loads its shards of them.
void load_optimizer(const std::string& bytes, ::torch::optim::Optimizer& optimizer,
                    const ParameterShards* shards = nullptr);

/// For the metadata of bytes that have only the shards of one rank.
constexpr const char* shard_place_entry = "kolo.shard";
[[nodiscard]] inline std::string shard_place_text(int index, int ranks) {
  return std::to_string(index + 1) + " of " + std::to_string(ranks);
}

/// Throws InvalidArgument unless bytes with the state of the ranks `there` are for this optimizer,
/// which holds that of `here`. Each is a `shard_place_text`, or "" for the whole state.
void require_same_place(const std::string& there, const std::string& here);

}  // namespace kolo::internal
