// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer in files, one for each rank with the parts of that rank.
//
// A folder has files "state-<number>-of-<ranks>.safetensors", numbered from 1, with the tensors of
// `save_optimizer`, and an index, training/checkpoint/index_files.hpp. Each file and the index have
// the same key, so that files of two states are never mixed.
#pragma once

#include <filesystem>
#include <string>

#include "torch/optimizer/parameter_shards.hpp"

namespace kolo::internal {

/// Writes the file of one rank. Throws CheckpointError, and InvalidArgument for an optimizer of an
/// unknown class.
void write_shard(const std::filesystem::path& folder, const std::string& key,
                 ShardPosition position, const ::torch::optim::Optimizer& optimizer,
                 const ParameterShards& shards);

/// Reads this rank's parts from the files that have them, written by any number of ranks. `place`
/// is the `shard_place_text` of this rank. Throws CheckpointError, and InvalidArgument for the
/// state of another optimizer; nothing has changed then.
void read_shards(const std::filesystem::path& folder, ::torch::optim::Optimizer& optimizer,
                 const ParameterShards& shards, const std::string& place);

}  // namespace kolo::internal
