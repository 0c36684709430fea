// SPDX-License-Identifier: Apache-2.0
// The gradients of a ShardedOptimizer that divides them: each rank keeps its shards of the sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "torch/optimizer/parameter_shards.hpp"
#include "torch/optimizer/torch_gradient_storage.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

/// A reducescatter reduces each gradient and frees its memory. The result on this rank becomes the
/// gradient of the parameter's shard, which the optimizer steps. Further passes add to it, so
/// nothing is reduced twice, and nothing has to be set aside.
///
/// The program still holds the whole parameter, whose gradient is gone. A placeholder takes the
/// place of the gradient: one NaN, expanded to the parameter's shape. It has two purposes. A
/// program that reads the gradient gets NaN instead of numbers that were not reduced. And
/// `module->zero_grad()`, which knows only whole parameters and skips undefined gradients, writes
/// to the placeholder, whose version counter then tells this class to zero the shard's gradient.
class ShardGradientStorage : public TorchGradientStorage {
 public:
  ShardGradientStorage(const DistributedOptimizerOptions& options,
                       std::shared_ptr<ParameterShards> shards);

  /// Zeroes or removes the gradients of shards whose placeholders the program has zeroed or
  /// removed.
  void sync_with_module();
  /// Divides, without reducing them, the gradients that the program has set since the reduction.
  void take_replaced();
  /// Removes whole gradients, after the optimizer has zeroed or removed the gradients of shards. A
  /// placeholder of zeros takes the place of each whole gradient whose shard still has one.
  void clear();

  [[nodiscard]] std::string description() const override {
    return describe(Sharding::state_and_gradients);
  }
  [[nodiscard]] bool ends_steps_together() const override { return true; }
  void release(std::size_t slot) override;
  void prepare_end() override { sync_with_module(); }
  void make_room(std::size_t slot) override;
  void accumulate_locally(std::size_t slot) override;
  void accumulated_locally(std::size_t slot) override;
  void require_unmixed() const override {}
  void forget_changed() override { sync_with_module(); }
  void require_reducible(std::size_t slot, bool grouped) const override;
  void require_disjoint() const override {}  // nothing is reduced in place
  void forget() override;

  [[nodiscard]] int content(std::size_t slot) const override;
  [[nodiscard]] bool is_waiting(std::size_t slot) const override;
  void expect(std::size_t slot, int content) override;
  TensorView open(std::size_t slot, double factor) override;
  std::unique_ptr<OwnReduction> open_own(std::size_t, double, const std::string&,
                                         std::int64_t) override {
    return nullptr;
  }
  void scale(std::size_t slot, double factor) override;
  void cancel(std::size_t slot) override;
  Future<void> submit(std::span<const std::size_t> slots,
                      const detail::GroupedAllreduceCall& call) override;
  void completed(std::size_t slot, int round) override;
  void close(std::size_t slot, bool keep) override;
  void detach(std::size_t slot) override;

 private:
  struct Round {
    ::torch::Tensor gradient;  // whole; undefined once the operation is done
    ::torch::Tensor shard;     // this rank's shard of the sum
  };
  static constexpr std::int64_t unknown = -1;
  /// The kind of tensor that this class has left as the gradient of the whole parameter.
  enum class Left : std::uint8_t { nothing, placeholder, local_gradient };
  struct State {
    std::deque<Round> rounds{};  // one for each round of the pass
    Left left = Left::nothing;   // as the gradient of the whole parameter
    ::torch::Tensor placeholder{};
    std::int64_t version = unknown;  // version of that tensor when it was left
  };

  [[nodiscard]] State& state_of(std::size_t slot);
  [[nodiscard]] const State* find_state(std::size_t slot) const;
  [[nodiscard]] bool has_placeholder(std::size_t slot) const;
  [[nodiscard]] bool has_gradient(std::size_t slot) const;
  void sync_with_module(std::size_t slot);
  [[nodiscard]] bool has_changed(std::size_t slot) const;
  void sync_changed(const ::torch::Device& device);
  void remove_placeholder(std::size_t slot);
  void put_placeholder(std::size_t slot, double value);
  void take_unreduced(std::size_t slot, bool expected);
  [[nodiscard]] std::size_t references() const override { return 2; }  // the second: its shard's

  std::shared_ptr<ParameterShards> shards_;
  std::deque<State> states_{};  // by slot
};

/// Gradients are reduced whole. The gradient of a parameter's shard, which the optimizer steps,
/// lies in the memory of the whole gradient.
class WholeGradientStorage : public TorchGradientStorage {
 public:
  WholeGradientStorage(const DistributedOptimizerOptions& options,
                       std::shared_ptr<ParameterShards> shards)
      : TorchGradientStorage(options, sharded_subject), shards_(std::move(shards)) {}
  [[nodiscard]] std::string description() const override { return describe(Sharding::state); }
  [[nodiscard]] bool ends_steps_together() const override { return true; }

  void release(std::size_t slot) override {
    const ::torch::Tensor former = parameters()[slot].tensor;
    TorchGradientStorage::release(slot);
    shards_->release(former, parameters()[slot].tensor);
  }
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
  [[nodiscard]] std::size_t references() const override { return 2; }  // the second: its shard's
  void sync_with_module(std::size_t slot) const {
    ParameterShard& shard = shards_->of_whole(parameters()[slot].tensor);
    if (!shard.shares_gradient || shard.shard.grad().defined()) return;
    if (is_reduced(parameters()[slot])) shard.whole.mutable_grad().reset();
    shard.shares_gradient = false;
  }

  std::shared_ptr<ParameterShards> shards_;
};

}  // namespace kolo::internal
