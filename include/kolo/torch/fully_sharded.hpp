// SPDX-License-Identifier: Apache-2.0
// Fully sharded training with LibTorch: each rank keeps one shard of every parameter, gradient and
// optimizer state.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/sharded_module.hpp"
#include "kolo/types.hpp"

namespace kolo {

/// Options of FullySharded, which must be equal on all ranks of the set.
struct FullyShardedOptions {
  ReduceOp op = ReduceOp::average;              ///< average or sum.
  Compression compression = Compression::none;  ///< Of gradients.
  /// The dtype in which parameters are gathered and units compute, such as bf16, where it is not
  /// the dtype of the shards. Gradients travel in it too; their sums are not rounded to it.
  std::optional<::torch::Dtype> compute{};
  /// If false, units stay gathered from forward to backward: less traffic, more memory.
  bool reshard_after_forward = true;
  int units_ahead = 1;       ///< Units gathered before they are needed, 0 or more.
  ProcessSet process_set{};  ///< Ranks that hold one copy of the model between them.
  /// For hybrid sharding: the ranks that hold the same shards in other copies (`add_hybrid_sets`).
  std::optional<ProcessSet> replicas{};
};

/// Process sets for hybrid sharding: several copies of the model, each divided among some ranks.
struct HybridSets {
  ProcessSet process_set;  ///< The ranks of this rank's copy.
  ProcessSet replicas;     ///< The ranks that hold the same shards, one of each copy.
};
/// Makes copies of `ranks_per_copy` consecutive ranks, such as those of a host. Parameters are then
/// gathered inside a copy, and only the reduced gradients of shards travel between copies:
///
///     const kolo::HybridSets sets = kolo::add_hybrid_sets(kolo::local_size());
///     kolo::FullySharded sharded(model, {.process_set = sets.process_set,
///                                        .replicas = sets.replicas});
///
/// Collective in the world. Throws InvalidArgument unless `ranks_per_copy` divides the number of
/// ranks.
[[nodiscard]] KOLO_EXPORT HybridSets add_hybrid_sets(int ranks_per_copy);

/// Trains a model on n ranks. Each holds 1/n of the parameters, gradients and optimizer state
/// (Rajbhandari et al., 2020, "ZeRO", stage 3, https://arxiv.org/abs/1910.02054; Zhao et al., 2023,
/// "PyTorch FSDP", https://arxiv.org/abs/2304.11277):
///
///     kolo::Sharded<GPT> model(1024);          // whose blocks are kolo::Sharded<Block>
///     kolo::FullySharded sharded(model);
///     torch::optim::AdamW optimizer(sharded.parameters(), 1e-3);
///     ...
///     optimizer.zero_grad();
///     loss(model->forward(data), target).backward();
///     kolo::clip_grad_norm(optimizer, 1.0);    // the norm of all shards
///     optimizer.step();
///
/// The model and some of its submodules are `Sharded`: the units. A parameter belongs to the
/// innermost unit that has it, or, if several units use it, to the innermost one that contains
/// these. Each unit is gathered while its forward runs and again for its backward; outside of that
/// its parameters have no memory and read as NaN. The model itself and units that contain others
/// stay gathered from forward to backward, so give large parameters units of their own. Besides
/// activations, a rank needs 4P/n for parameters, gradients and AdamW's state, and the largest unit
/// about four times (docs/fully-sharded.md).
///
/// `parameters()` are this rank's shards: leaves with one dimension, split as by
/// `reducescatter_rows`. Backward reduce-scatters the gradients of each unit while it goes on, and
/// they are final when it returns; on a GPU, in the order of the current stream. Passes accumulate.
/// The optimizer must be elementwise (see `is_elementwise_optimizer`). On CPUs, the parameters then
/// have the bits of a DistributedOptimizer's, unless steps are clipped, gradients are compressed or
/// `compute` is set. `kolo::clip_grad_norm` and GradScaler take such an optimizer as any other.
///
/// All ranks of the set must call the model's forward equally often, and backward too. They may use
/// different units once all ranks have used all units, in the same order, and if each backward
/// follows one forward: a rank passes over what others use. A rank without data calls `take_part`.
/// If backward throws on one rank, the others' backward throws BackwardFailed; if forward throws,
/// once that rank calls forward again or `take_part`. Then call `zero_grad`. `join` makes the calls
/// of others throw Mismatch. A step between forward and backward makes backward throw Error, except
/// with LibTorch's SGD on GPUs, where it goes unnoticed.
///
/// Return from a unit's forward every tensor that backward must pass through; do not store it in a
/// member. If one call of `checkpointed` contains several units, all ranks must use the same units,
/// and none may call `take_part`.
///
/// Frozen parameters must be frozen before construction; units that have some are freed at the end
/// of backward. The module must not be converted or moved later.
///
/// Construction is collective. It throws Mismatch if units or options differ between ranks, and
/// InvalidArgument for parameters in no unit, not dense, or not of a floating-point type, and for a
/// rank outside the set. The model must outlive this object, and this object every forward and
/// backward. Not thread-safe. Neither movable nor copyable.
class FullySharded {
 public:
  KOLO_EXPORT explicit FullySharded(::torch::nn::Module& model,
                                    const FullyShardedOptions& options = {});
  template <HoldsModule Holder>
  explicit FullySharded(const Holder& holder, const FullyShardedOptions& options = {})
      : FullySharded(static_cast<::torch::nn::Module&>(*holder.ptr()), options) {}
  KOLO_EXPORT ~FullySharded();
  FullySharded(const FullySharded&) = delete;
  FullySharded& operator=(const FullySharded&) = delete;

  /// This rank's shards of the parameters, in the order of the model's `named_parameters()`. A
  /// shared parameter counts once.
  [[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> parameters() const;
  [[nodiscard]] KOLO_EXPORT NamedParameters named_parameters() const;

  /// Returns a guard. While it lives, gradients accumulate whole on this rank, which needs memory
  /// for the gradients of the whole model. The next pass outside reduces them.
  [[nodiscard]] KOLO_EXPORT NoSync no_sync() const;

  /// Removes the gradients of the shards, and those of passes in `no_sync` that were not reduced,
  /// which an optimizer's `zero_grad` does not know.
  KOLO_EXPORT void zero_grad();

  /// Takes part in a forward and backward of the other ranks, with zeros: the call of a rank
  /// without data. If forward has thrown on this rank, completes that one instead, and all ranks
  /// get BackwardFailed.
  KOLO_EXPORT void take_part();
  /// The same for a rank that has run forward and makes no backward.
  KOLO_EXPORT void take_part_in_backward();

  /// Call it after a new session has begun. If the rank's number or the number of ranks has
  /// changed, this rank's shards are NaN. Then, or if a rank is new, load the state of the model
  /// and then that of its optimizers. Collective in the world; throws InvalidArgument for a process
  /// set, which has ended with its session.
  KOLO_EXPORT void rejoin();

  /// A guard. While it lives, all parameters are whole, for evaluation by each rank for itself
  /// without gradients, or to look at them. Do not change them: several ranks lose the changes, and
  /// one rank keeps them. Forward with gradients throws InvalidArgument.
  class [[nodiscard]] Whole {
   public:
    KOLO_EXPORT ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    friend class FullySharded;
    struct State;
    explicit Whole(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  /// Gathers all parameters. Collective; needs memory for the whole model.
  KOLO_EXPORT Whole gather() const;

  /// The whole parameters and the buffers, as `kolo::state(model)` gives them for a model that is
  /// not sharded. Empty except on `root`, a world rank, which needs memory for two copies of it;
  /// without `root`, every rank gets it. Gathers one tensor at a time. Buffers are those of the
  /// rank. Collective.
  [[nodiscard]] KOLO_EXPORT StateDict full_state(int root) const;
  [[nodiscard]] KOLO_EXPORT StateDict full_state() const;
  /// Loads this rank's shards, and the buffers, from the state of a whole model. Reads only what
  /// this rank needs. Not collective. Throws InvalidArgument, with nothing changed, unless names
  /// and shapes are those of the model.
  KOLO_EXPORT void load_full_state(const StateView& state);

  /// As above for the state of an optimizer of `parameters()`: SGD, Adam, AdamW, RMSprop or
  /// Adagrad. It is that of a DistributedOptimizer or ShardedOptimizer of the same parameters in
  /// the same order, and either can load it.
  [[nodiscard]] KOLO_EXPORT StateDict full_state(const ::torch::optim::Optimizer& optimizer,
                                                 int root) const;
  KOLO_EXPORT void load_full_state(const StateView& state,
                                   ::torch::optim::Optimizer& optimizer) const;

  /// This rank's shards of the parameters, not copied, for `CheckpointExtras::per_rank`. Buffers
  /// are not part of it. With hybrid sharding, only the first copy has any. For an optimizer of
  /// them use `kolo::state_view(optimizer)`.
  [[nodiscard]] KOLO_EXPORT StateView state_view() const;
  /// Loads what any number of ranks have saved so: pass `found->per_rank_parts("model")`, and for
  /// an optimizer `found->per_rank_parts("optimizer")`. Reads only what this rank needs. If shards
  /// are missing, damaged or of other parameters on one rank, all ranks throw an Error that names
  /// the rank. Collective.
  KOLO_EXPORT void load_sharded_state(const std::vector<StateView>& shards);
  KOLO_EXPORT void load_sharded_state(const std::vector<StateView>& shards,
                                      ::torch::optim::Optimizer& optimizer) const;

  /// Counts since construction, on this rank.
  struct Counters {
    std::int64_t gathers;       ///< Units gathered.
    std::int64_t late_gathers;  ///< Those of them that were not done when they were needed.
    std::int64_t reductions;    ///< Units whose gradients were reduced.
  };
  [[nodiscard]] KOLO_EXPORT Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kolo
