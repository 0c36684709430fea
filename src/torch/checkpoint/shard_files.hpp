// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer in files: one for each rank, with its parts.
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

/// Reads this rank's parts from the files that have them, written by any number of ranks. Throws
/// CheckpointError, and InvalidArgument for the state of another optimizer; nothing has changed
/// then.
/// `place`: of this rank, as `shard_place_text`.
void read_shards(const std::filesystem::path& folder, ::torch::optim::Optimizer& optimizer,
                 const ParameterShards& shards, const std::string& place);

}  // namespace kolo::internal
