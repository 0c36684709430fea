// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer for custom optimizers: each rank keeps one shard of the optimizer's state.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/optimizer.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

/// The data that a ShardedOptimizer splits among the ranks.
enum class Sharding : std::uint8_t {
  state,                ///< Optimizer state (ZeRO-1). Gradients stay full on all ranks.
  state_and_gradients,  ///< Optimizer state and reduced gradients (ZeRO-2).
};

/// This rank's shard of a parameter and of its gradient: elements [begin, end), in row-major order.
struct Shard {
  std::size_t parameter;  ///< Its index in `gradients()` and `parameters()`.
  std::int64_t begin;
  std::int64_t end;

  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
};

/// An optimizer that can update shards: its update of an element depends on no other element.
/// `parameters()` and `gradients()` have the same names, shapes and dtypes in the same order.
template <typename T>
concept ShardStepper = requires(T& optimizer, std::span<const Shard> shards) {
  { optimizer.gradients() } -> std::convertible_to<std::vector<NamedTensor>>;
  { optimizer.parameters() } -> std::convertible_to<std::vector<NamedTensor>>;
  optimizer.step(shards);
};

/// A DistributedOptimizer in which each rank updates one shard of each parameter, and keeps state,
/// such as Adam's moments, only for its shards (Rajbhandari et al., 2020, "ZeRO",
/// https://arxiv.org/abs/1910.02054). Parameters stay full on all ranks:
///
///     struct Trainer {
///       std::vector<kolo::NamedTensor> gradients();
///       std::vector<kolo::NamedTensor> parameters();
///       void step(std::span<const kolo::Shard> shards);  // updates these elements
///     };
///     kolo::ShardedOptimizer optimizer(trainer);
///     trainer.make_state(optimizer.shards());
///     ...
///     optimizer.step();  // reduces gradients, updates shards, and gathers parameters
///
/// Elements are split as by `reducescatter_rows`. After the reduction, only this rank's shard of a
/// gradient is valid, except with `Sharding::state`. The optimizer must be elementwise.
/// `Sharding::state` gives the same parameters as DistributedOptimizer, bit for bit.
/// `state_and_gradients` does too if tensors are on CPUs and there is no compression; with
/// compression, its sums are not rounded to the wire type.
///
/// Every rank must update its shards. If one calls `join`, the others' steps throw Mismatch.
/// A rank that runs out of data steps with zero gradients instead. On ranks outside the process
/// set, a shard is the full tensor.
///
/// Errors and options are those of DistributedOptimizer. The constructor also throws
/// InvalidArgument for adasum, for a communication hook with `state_and_gradients`, and for
/// parameters that do not match the gradients. `kolo/torch.hpp` has the version for LibTorch's
/// optimizers.
template <typename Optimizer>
class ShardedOptimizer {
 public:
  // clang-format off
  explicit ShardedOptimizer(Optimizer& optimizer, const DistributedOptimizerOptions& options = {},
                            Sharding sharding = Sharding::state_and_gradients)
    requires ShardStepper<Optimizer>
      : optimizer_(&optimizer),
        reducer_(optimizer.gradients(), options, sharding, detail::parameters_of(optimizer)) {}
  // clang-format on

  /// This rank's shards, in the order of `gradients()`. Shards of small tensors may be empty.
  [[nodiscard]] std::span<const Shard> shards() const { return reducer_.shards(); }

  /// Same as DistributedOptimizer's `ready`, `end_pass` and `reduce`.
  void ready(const std::string& name) {
    reducer_.ready(name, [this] { return optimizer_->gradients(); });
  }
  void end_pass() { reducer_.end_pass(); }
  ReducedGradients reduce() { return ReducedGradients(reducer_.reduce(optimizer_->gradients())); }

  /// Clips this rank's shards of the gradients by the global norm, which is the same on all ranks.
  /// Returns the norm before scaling. Collective and throwing like DistributedOptimizer's.
  double clip_grad_norm(ReducedGradients& gradients, double max_norm) {
    reducer_.require_current(gradients.reduction_, "clip_grad_norm()");
    return reducer_.clip(optimizer_->gradients(), max_norm);
  }

  /// Updates this rank's shards, and gathers the parameters. Throws the errors of
  /// DistributedOptimizer's `step`. If one rank steps and another discards, all get Mismatch; then
  /// parameters and state are invalid until both are loaded from a checkpoint.
  void step(ReducedGradients gradients) {
    reducer_.require_current(gradients.reduction_, "step()");
    reducer_.require_all_ranks();
    optimizer_->step(reducer_.shards());
    reducer_.gather(optimizer_->parameters());
    reducer_.end_step();
  }
  void step() { step(reduce()); }

  /// Drops the gradients of this step and its passes, like DistributedOptimizer's `discard`.
  void discard() {
    reducer_.discard([this] { return optimizer_->gradients(); });
    reducer_.require_all_ranks();
    reducer_.gather({});
  }

  /// Call it after a new session has begun; see DistributedOptimizer's `rejoin`. `shards()` changes
  /// with the number of ranks, so redistribute the state that you keep for them.
  void rejoin() { reducer_.rejoin(optimizer_->gradients()); }

 private:
  Optimizer* optimizer_;
  detail::NamedGradientReducer reducer_;
};

}  // namespace kolo
