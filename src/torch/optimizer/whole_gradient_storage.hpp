// SPDX-License-Identifier: Apache-2.0
// The gradients of a ShardedOptimizer that shards only its state.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "torch/optimizer/parameter_shards.hpp"
#include "torch/optimizer/torch_gradient_storage.hpp"

namespace kolo::internal {

/// Gradients are reduced whole. The gradient of a parameter's shard, which the optimizer steps,
/// lies in the memory of the whole gradient.
class WholeGradientStorage : public TorchGradientStorage {
 public:
  WholeGradientStorage(const DistributedOptimizerOptions& options,
                       std::shared_ptr<ParameterShards> shards)
      : TorchGradientStorage(options, sharded_subject), shards_(std::move(shards)) {}
  [[nodiscard]] std::string description() const override { return describe(Sharding::state); }
  [[nodiscard]] bool ends_steps_together() const override { return true; }

  void make_room(std::size_t slot) override {
    sync_with_module(slot);
    TorchGradientStorage::make_room(slot);
  }
  void accumulate_locally(std::size_t slot) override {
    sync_with_module(slot);
    TorchGradientStorage::accumulate_locally(slot);
  }
  [[nodiscard]] int content(std::size_t slot) const override {
    sync_with_module(slot);
    return TorchGradientStorage::content(slot);
  }

  // LibTorch's own `zero_grad` removes only the gradients of shards. This function removes the
  // whole gradients of these shards, unless the program has set others since the reduction.
  void sync_with_module() const {
    for (std::size_t slot = 0; slot < parameters().size(); ++slot) sync_with_module(slot);
  }

 private:
  void sync_with_module(std::size_t slot) const {
    ParameterShard& shard = shards_->of_whole(parameters()[slot].tensor);
    if (!shard.shares_gradient || shard.shard.grad().defined()) return;
    if (is_reduced(parameters()[slot])) shard.whole.mutable_grad().reset();
    shard.shares_gradient = false;
  }

  std::shared_ptr<ParameterShards> shards_;
};

}  // namespace kolo::internal
