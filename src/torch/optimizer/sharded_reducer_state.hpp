// SPDX-License-Identifier: Apache-2.0
// The state of ShardedReducer: everything that a ShardedOptimizer adds to its base class.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kolo/torch/sharded_optimizer.hpp"
#include "torch/optimizer/parameter_names.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "torch/optimizer/shard_gradient_storage.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::detail {

struct ShardedReducer::State {
  DistributedOptimizerOptions options;
  Sharding sharding;
  std::optional<NamedParameters> given_names;
  internal::ShardPosition position;  // where this rank's shards are
  StateDict loaded;  // the state loaded before the first session; kept until the first step
  bool is_member;
  internal::ParameterNames names;
  std::shared_ptr<internal::ParameterShards> shards;
  std::shared_ptr<internal::ShardGradientStorage> storage;        // null if gradients stay whole
  std::shared_ptr<internal::WholeGradientStorage> whole_storage;  // null if they are divided
  std::optional<GradientReducer> reducer;
  bool is_live = false;  // false after a `rejoin` that threw

  /// Throws InvalidArgument after a `rejoin` that threw.
  [[nodiscard]] GradientReducer& live();
  [[nodiscard]] std::string operation(const char* name) {
    return std::to_string(live().number()) + name;
  }

  /// Collective. Replaces the parameters in the optimizer's groups by this rank's shards of them.
  void divide(Optimizer& optimizer);
  /// Keeps the state that the optimizer came with. Needed before the first session of an elastic
  /// job: its ranks are not known yet, so the first session divides the whole state again.
  void keep_undivided(const Optimizer& optimizer);
  /// Puts the parameters back, without gradients and state.
  void reunite(Optimizer& optimizer);
  /// Collective. Throws Mismatch if a rank of the set has joined. Divided gradients need no check,
  /// because their reducescatter throws.
  void require_all_ranks();
  /// Gives each shard its elements of the whole gradient, in the memory of that gradient.
  void share_gradients();
  /// Collective. Gathers the stepped shards into the whole parameters. A rank that skips its step
  /// gathers nothing under the same name, so that the ranks that step get Mismatch.
  void gather_parameters(bool stepped);
};

/// Gathers the shards of all ranks into `whole`.
void add_to(internal::ShardGather& gather, const ::torch::Tensor& shard,
            const ::torch::Tensor& whole);

}  // namespace kolo::detail
