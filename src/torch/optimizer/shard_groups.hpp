// SPDX-License-Identifier: Apache-2.0
// Finds out whether an optimizer of LibTorch's has this rank's shards of parameters.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "kolo/process_set.hpp"
#include "torch/optimizer/parameter_names.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

/// The shards of a model, in leaves that any optimizer may have, and the ranks that hold them.
struct ShardGroup {
  ProcessSet set;
  std::string operation;  // begins the names of operations
  ShardPosition position{};
  bool saves = true;  // false for all copies of the model but the first
  /// Each has the whole parameter's dtype, shape and strides, on LibTorch's meta device.
  std::vector<ParameterShard> shards{};

  /// Null for a tensor that is not a shard.
  [[nodiscard]] const ParameterShard* of_shard(const ::torch::Tensor& tensor) const;

  /// Collective. Whether `condition` is true on all ranks.
  [[nodiscard]] bool all_ranks(bool condition) const;
  /// Collective. A number that is above 0 if `own` is on any rank, on the same device.
  [[nodiscard]] ::torch::Tensor on_any_rank(::torch::Tensor own) const;
};

/// Makes `shard_group_of` find the group by its shards, as long as the group lives.
void add_shard_group(const std::shared_ptr<const ShardGroup>& group);

/// The group whose shards an optimizer has; null if it has none. Throws InvalidArgument if the
/// optimizer also has other parameters: its norm and its overflows would be wrong.
[[nodiscard]] std::shared_ptr<const ShardGroup> shard_group_of(const ParameterGroups& groups);

/// Throws InvalidArgument if a tensor is a shard: what `subject` does needs whole parameters that
/// are the same on all ranks.
void refuse_shards(const ParameterGroups& groups, const std::string& subject);

}  // namespace kolo::internal
