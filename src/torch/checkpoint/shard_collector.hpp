// SPDX-License-Identifier: Apache-2.0
// This rank's shards of a state that any number of ranks have saved in shards.
#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "kolo/state_dict.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/optimizer/parameter_shards.hpp"

namespace kolo::internal {

/// The shards that an optimizer has, in the order in which its saved state numbers them; null for a
/// whole parameter.
[[nodiscard]] std::vector<const ParameterShard*> shards_by_number(
    const ::torch::optim::Optimizer& optimizer, const ShardFinder& find);

/// The dtypes and shapes of the whole parameters, as JSON.
[[nodiscard]] std::string describe(const std::vector<const ParameterShard*>& parameters);

/// The state of this rank's shards, from what the ranks of another or the same job have saved with
/// `shard_place_entry`. Reads only what this rank needs. Throws InvalidArgument if a shard is
/// missing or damaged, or if the parameters are others.
///
/// In the state of an optimizer, the tensor "state.3.exp_avg" belongs to the fourth of
/// `parameters`. In that of a model, tensors have the names of parameters.
[[nodiscard]] StateView collect_optimizer_shards(
    const std::vector<StateView>& saved, const std::vector<const ParameterShard*>& parameters,
    const std::string& place);
[[nodiscard]] StateView collect_model_shards(const std::vector<StateView>& saved,
                                             const std::vector<const ParameterShard*>& parameters,
                                             const std::vector<std::string>& names,
                                             const std::string& place);

}  // namespace kolo::internal
