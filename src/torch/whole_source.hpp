// SPDX-License-Identifier: Apache-2.0
// The gradients of a ShardedOptimizer that shards only its state.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "torch/gradient_source.hpp"
#include "torch/parameter_shards.hpp"

namespace kolo::internal {

/// Whole gradients, whose parts belong to the parameters that the optimizer has.
class WholeSource : public TorchSource {
 public:
  WholeSource(const DistributedOptimizerOptions& options, std::shared_ptr<ParameterShards> shards)
      : TorchSource(options, sharded_subject), shards_(std::move(shards)) {}
  [[nodiscard]] std::string description() const override { return describe(Sharding::state); }
  [[nodiscard]] bool ends_steps_together() const override { return true; }

  void make_room(std::size_t slot) override {
    follow_program(shard_of(slot));
    TorchSource::make_room(slot);
  }
  void accumulate_locally(std::size_t slot) override {
    follow_program(shard_of(slot));
    TorchSource::accumulate_locally(slot);
  }
  void expect(std::size_t slot, int content) override {
    follow_program(shard_of(slot));
    TorchSource::expect(slot, content);
  }

  // A program that knows the optimizer as LibTorch's removes only the gradients of parts.
  static void follow_program(ParameterShard& shard) {
    if (!shard.shares_gradient || shard.part.grad().defined()) return;
    shard.whole.mutable_grad().reset();
    shard.shares_gradient = false;
  }

 private:
  [[nodiscard]] ParameterShard& shard_of(std::size_t slot) {
    return shards_->of_whole(parameters()[slot].tensor);
  }

  std::shared_ptr<ParameterShards> shards_;
};

}  // namespace kolo::internal
