// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer for custom optimizers: each rank keeps a part of their state.
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

/// What a ShardedOptimizer divides among the ranks.
enum class Sharding : std::uint8_t {
  state,                ///< The optimizer's state, as ZeRO-1. Gradients are reduced whole.
  state_and_gradients,  ///< As ZeRO-2.
};

/// This rank's part of a parameter and of its gradient: elements `begin` to `end`, without `end`.
struct Shard {
  std::size_t parameter;  ///< Its place in `gradients()` and `parameters()`.
  std::int64_t begin;
  std::int64_t end;

  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
};

/// A custom optimizer that steps parts of its parameters. `parameters()` and `gradients()` have the
/// same names, shapes and dtypes in the same order.
template <typename T>
concept ShardStepper = requires(T& optimizer, std::span<const Shard> shards) {
  { optimizer.gradients() } -> std::convertible_to<std::vector<NamedTensor>>;
  { optimizer.parameters() } -> std::convertible_to<std::vector<NamedTensor>>;
  optimizer.step(shards);
};

/// As DistributedOptimizer for a custom optimizer, but each rank steps only its part of each
/// parameter, and needs state, such as Adam's averages, only for these (Rajbhandari et al., 2020,
/// "ZeRO", https://arxiv.org/abs/1910.02054):
///
///     struct Trainer {
///       std::vector<kolo::NamedTensor> gradients();
///       std::vector<kolo::NamedTensor> parameters();
///       void step(std::span<const kolo::Shard> shards);  // steps these elements
///     };
///     kolo::ShardedOptimizer optimizer(trainer);
///     trainer.make_state(optimizer.shards());
///     ...
///     optimizer.step();  // reduces gradients, steps the parts, and gathers the parameters
///
/// Elements are divided by `reducescatter_rows`. After the reduction, only this rank's part of a
/// gradient has a meaning, unless `Sharding::state`. The optimizer must treat each element by
/// itself: then parameters have the same bits as with DistributedOptimizer. Only sharded gradients
/// may differ: with compression, because their sums are not rounded to the type that travels, and
/// in the last bits if the ranks are on several hosts, because these are added in another order.
///
/// Every rank steps its parts, so a rank without data cannot `join`: the others get Mismatch. It
/// steps with gradients of zero instead. On ranks outside the process set, a part is the whole.
///
/// Errors and options are those of DistributedOptimizer. The constructor also throws
/// InvalidArgument for adasum, for a communication hook unless `Sharding::state`, and for
/// parameters that are not like the gradients. `kolo/torch.hpp` has the version for LibTorch's
/// optimizers.
template <typename Optimizer>
class ShardedOptimizer {
 public:
  // clang-format off
  explicit ShardedOptimizer(Optimizer& optimizer, const DistributedOptimizerOptions& options = {},
                            Sharding sharding = Sharding::state_and_gradients)
    requires ShardStepper<Optimizer>
      : optimizer_(&optimizer),
        reducer_(optimizer.gradients(), options, sharding, optimizer.parameters()) {}
  // clang-format on

  /// This rank's parts, in the order of `gradients()`. Those of small tensors may be empty.
  [[nodiscard]] std::span<const Shard> shards() const { return reducer_.shards(); }

  /// As DistributedOptimizer's.
  void ready(const std::string& name) {
    reducer_.ready(name, [this] { return optimizer_->gradients(); });
  }
  void end_pass() { reducer_.end_pass(); }
  ReducedGradients reduce() { return ReducedGradients(reducer_.reduce(optimizer_->gradients())); }

  /// Scales this rank's parts of the gradients if the norm of all ranks' parts together exceeds
  /// `max_norm`. Returns the norm, otherwise as DistributedOptimizer's.
  double clip_grad_norm(ReducedGradients& gradients, double max_norm) {
    reducer_.require_current(gradients.reduction_, "clip_grad_norm()");
    return reducer_.clip(optimizer_->gradients(), max_norm);
  }

  /// Steps this rank's parts, and gathers the parameters. Throws as DistributedOptimizer's. If one
  /// rank steps and another discards, all get Mismatch, and the parameters have no meaning until
  /// they are loaded or broadcast again.
  void step(ReducedGradients gradients) {
    reducer_.require_current(gradients.reduction_, "step()");
    reducer_.require_all_ranks();
    optimizer_->step(reducer_.shards());
    reducer_.gather(optimizer_->parameters());
    reducer_.end_step();
  }
  void step() { step(reduce()); }

  /// As DistributedOptimizer's: drops the gradients of this step and its passes.
  void discard() {
    reducer_.discard([this] { return optimizer_->gradients(); });
    reducer_.require_all_ranks();
    reducer_.gather({});
  }

 private:
  Optimizer* optimizer_;
  detail::NamedGradientReducer reducer_;
};

}  // namespace kolo
