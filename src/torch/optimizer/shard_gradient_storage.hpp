// SPDX-License-Identifier: Apache-2.0
// The gradients of a ShardedOptimizer that divides them: each rank keeps its part of their sums.
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

/// A gradient goes to the ranks by reducescatter, and its memory is freed once it has arrived. The
/// part that this rank gets is the gradient of the parameter's part. Further passes add to it, so
/// nothing is ever reduced twice, and nothing has to be set aside.
///
/// In the parameter's own gradient, a single NaN that looks like a whole tensor stands in: whoever
/// uses it sees that it is none, and it shows when a module zeroes its gradients.
class ShardGradientStorage : public TorchGradientStorage {
 public:
  ShardGradientStorage(const DistributedOptimizerOptions& options,
                       std::shared_ptr<ParameterShards> shards);

  /// Changes the gradients of parts as the program has changed what it sees of them: the stand-ins.
  void sync_with_module();
  /// Takes gradients that the program has set since they were reduced, as they are.
  void take_replaced();
  /// Removes whole gradients. Zeros stand in where the part's gradient is zero.
  void clear();

  [[nodiscard]] std::string description() const override {
    return describe(Sharding::state_and_gradients);
  }
  [[nodiscard]] bool ends_steps_together() const override { return true; }
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
  Future<void> submit(std::size_t slot, const detail::GroupedAllreduceCall& call) override;
  void completed(std::size_t slot, int round) override;
  void close(std::size_t slot, bool keep) override;
  void detach(std::size_t slot) override;

 private:
  struct Part {
    ::torch::Tensor gradient;  // whole; undefined once it has arrived
    ::torch::Tensor result;    // this rank's part of the sum
  };
  static constexpr std::int64_t unknown = -1;
  enum class Left : std::uint8_t { nothing, placeholder, local_gradient };
  struct State {
    std::deque<Part> parts{};   // one for each round of the pass
    Left left = Left::nothing;  // in the parameter's gradient
    ::torch::Tensor placeholder{};
    std::int64_t version = unknown;  // of what was left
  };

  [[nodiscard]] State& state_of(std::size_t slot);
  [[nodiscard]] const State* find_state(std::size_t slot) const;
  [[nodiscard]] bool has_placeholder(std::size_t slot) const;
  [[nodiscard]] bool has_gradient(std::size_t slot) const;
  void sync_with_module(std::size_t slot);
  void sync_placeholder(std::size_t slot);
  void remove_placeholder(std::size_t slot);
  void put_placeholder(std::size_t slot, double value);
  void take_unreduced(std::size_t slot, bool expected);

  std::shared_ptr<ParameterShards> shards_;
  std::deque<State> states_{};         // by slot
  std::vector<std::size_t> opened_{};  // since the last `submit`
};

}  // namespace kolo::internal
