// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: averages an optimizer's gradients over the ranks before each step.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// The backward pass threw on another rank, which `ranks()` lists, so this pass reduced no
/// gradients. The gradients of this rank are invalid: call `zero_grad`. The session stays usable,
/// and the next pass is reduced.
class KOLO_EXPORT BackwardFailed : public Error {
 public:
  using Error::Error;
};

/// How the gradients of several backward passes are combined: summed or averaged.
enum class Accumulation : std::uint8_t { sum, mean };

/// The comparison of an optimizer's parameters between the ranks. If parameters differ, because
/// `broadcast_parameters` was not called or a rank has changed its own, each rank trains another
/// model, although gradients and losses are averaged. The comparison is part of a pass that reduces
/// gradients: if parameters differ, the call that ends the pass throws Mismatch on every rank of
/// the set, naming the first parameter that differs and the ranks that differ from the first one.
/// The program may continue. With LibTorch the gradients are reduced nevertheless; those of a
/// custom optimizer must be computed again before its next step.
///
/// Passes are counted from the last time that all ranks had joined: in the first pass of an epoch
/// after a `join`, nothing is compared. Parameters in GPU memory are left out, since a pass does
/// not wait for the GPU.
struct ParameterComparison {
  /// Compare in the first pass that reduces, after construction and after `rejoin`. With LibTorch,
  /// also in the first one after parameters were added or replaced, until ranks join.
  bool at_start = true;
  /// Also compare in every pass whose number is a multiple of this; 0: in no further pass.
  int every = 0;
  /// Names of parameters that may differ, such as those of layers that each rank has for itself.
  std::vector<std::string> except{};

  friend bool operator==(const ParameterComparison&, const ParameterComparison&) = default;
};

/// Options of a DistributedOptimizer. They must be equal on all ranks of the set. The optimizer's
/// constructor throws InvalidArgument for an invalid value.
struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average, sum or adasum.
  Compression compression = Compression::none;
  /// Backward passes per step, at least 1. Gradients are reduced during the last pass.
  int backward_passes_per_step = 1;
  Accumulation accumulation = Accumulation::sum;
  /// Splits the division of an average: gradients are divided by this factor before the sum, and by
  /// the number of ranks divided by this factor after it. Positive and finite; must be 1 for other
  /// operators.
  double gradient_predivide_factor = 1.0;
  /// Groups of parameter names. The gradients of a group are reduced as one operation.
  std::vector<std::vector<std::string>> groups{};
  /// Number of groups of consecutive parameters; 0: no groups. Cannot be combined with `groups`.
  int num_groups = 0;
  bool sparse_as_dense = false;  ///< Convert sparse gradients to dense before reducing them.
  /// Replaces the allreduce of gradients (see `CommunicationHook`); null for none. `op` must not be
  /// adasum. Each optimizer needs its own hook.
  std::shared_ptr<CommunicationHook> hook{};
  ProcessSet process_set{};       ///< Ranks that take part. Others step with their own gradients.
  ParameterComparison compare{};  ///< The parameters that the ranks compare, and when.
};

/// A custom optimizer. `gradients()` returns the named gradients, always the same names in the same
/// order; `step()` applies them. Gradients are reduced in place. If there is a `parameters()` that
/// returns named tensors, always the same names in the same order, the ranks compare them
/// (`ParameterComparison`).
template <typename T>
concept GradientOptimizer = requires(T& optimizer) {
  { optimizer.gradients() } -> std::convertible_to<std::vector<NamedTensor>>;
  optimizer.step();
};

enum class Sharding : std::uint8_t;  // in kolo/sharded_optimizer.hpp
struct Shard;                        // likewise

namespace detail {

/// Reduces the named gradients of one optimizer. Not thread-safe.
class NamedGradientReducer {
 public:
  using Gradients = std::vector<NamedTensor>;

  /// Collective.
  KOLO_EXPORT NamedGradientReducer(const Gradients& gradients,
                                   const DistributedOptimizerOptions& options,
                                   std::function<Gradients()> parameters);
  /// Collective. The constructor of a ShardedOptimizer uses it.
  KOLO_EXPORT NamedGradientReducer(const Gradients& gradients,
                                   const DistributedOptimizerOptions& options, Sharding sharding,
                                   std::function<Gradients()> parameters);
  KOLO_EXPORT NamedGradientReducer(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT NamedGradientReducer& operator=(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT ~NamedGradientReducer();

  /// Calls `gradients` at most once in a pass.
  KOLO_EXPORT void ready(const std::string& name, const std::function<Gradients()>& gradients);
  KOLO_EXPORT void end_pass();
  /// Returns the number of this reduction.
  KOLO_EXPORT std::int64_t reduce(const Gradients& gradients);
  /// Throws InvalidArgument, naming `call`, if gradients have changed since that reduction.
  KOLO_EXPORT void require_current(std::int64_t reduction, const char* call) const;
  KOLO_EXPORT double clip(const Gradients& gradients, double max_norm);
  KOLO_EXPORT void synchronize(const Gradients& gradients);
  [[nodiscard]] KOLO_EXPORT bool synchronized() const;
  KOLO_EXPORT void discard(const std::function<Gradients()>& gradients);
  KOLO_EXPORT void end_step();
  /// Collective.
  KOLO_EXPORT void rejoin(const Gradients& gradients);

  // The following functions are for a ShardedOptimizer.
  [[nodiscard]] KOLO_EXPORT std::span<const Shard> shards() const;
  /// Collective. Throws Mismatch if a rank has joined, unless the reduction has already thrown it.
  KOLO_EXPORT void require_all_ranks();
  /// Collective. Gathers the parameters after a step; pass none if the step is dropped.
  KOLO_EXPORT void gather(const Gradients& parameters);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The function that lists the optimizer's parameters; null if it has none.
template <typename Optimizer>
std::function<std::vector<NamedTensor>()> parameters_of(Optimizer& optimizer) {
  if constexpr (requires {
                  { optimizer.parameters() } -> std::convertible_to<std::vector<NamedTensor>>;
                })
    return [&optimizer] { return optimizer.parameters(); };
  return nullptr;
}

}  // namespace detail

/// A token for the reduced gradients of a DistributedOptimizer or ShardedOptimizer. Only `step`
/// consumes it; dropping it skips the step.
class [[nodiscard]] ReducedGradients {
 public:
  ReducedGradients(ReducedGradients&&) noexcept = default;
  ReducedGradients& operator=(ReducedGradients&&) noexcept = default;
  ReducedGradients(const ReducedGradients&) = delete;
  ReducedGradients& operator=(const ReducedGradients&) = delete;
  ~ReducedGradients() = default;

 private:
  template <typename Optimizer>
  friend class DistributedOptimizer;
  template <typename Optimizer>
  friend class ShardedOptimizer;
  explicit ReducedGradients(std::int64_t reduction) : reduction_(reduction) {}

  std::int64_t reduction_;
};

/// Reduces the gradients of a custom optimizer over the ranks before each of its steps:
///
///     kolo::DistributedOptimizer optimizer(model, {.op = kolo::ReduceOp::average});
///     ...                         // compute the gradients
///     optimizer.ready("weight");  // optional: starts the reduction of a complete gradient
///     optimizer.step();           // reduces the others, waits for all, and steps
///
/// Between the reduction and the step, you may inspect and clip gradients:
///
///     kolo::ReducedGradients reduced = optimizer.reduce();
///     if (std::isfinite(optimizer.clip_grad_norm(reduced, 1.0)))
///       optimizer.step(std::move(reduced));
///
/// If `step` is not called, the step is skipped, and the next one reduces its own gradients. The
/// norm is the same on all ranks, so all skip the same steps. If only some ranks skip a step, all
/// ranks get Mismatch.
///
/// Construction is collective: all ranks of the set construct their optimizers in the same order.
/// It throws Mismatch on every rank if names, shapes, dtypes or options differ, and InvalidArgument
/// for invalid options or a repeated name. `reduce`, `synchronize`, `step`, `discard` and
/// `skip_step` throw the errors of `allreduce`; after an error the step is over on all ranks. The
/// wrapped optimizer must outlive this object. Movable, not copyable; not thread-safe.
/// `kolo/torch.hpp` has the version for LibTorch's optimizers.
///
/// A rank that runs out of data calls `join` after its last step; the other ranks' averages are
/// then still divided by the number of all ranks. When all ranks have joined, they continue
/// together. If a rank began a step before its `join` and did not reduce it, that step is dropped,
/// and the next call begins a new one. If that call is `reduce`, `synchronize` or `step`, and some
/// gradients were submitted before the join, it throws InvalidArgument once, because it may have
/// been meant for the dropped step.
template <typename Optimizer>
class DistributedOptimizer {
 public:
  // clang-format off
  explicit DistributedOptimizer(Optimizer& optimizer,
                                const DistributedOptimizerOptions& options = {})
    requires GradientOptimizer<Optimizer>
      : optimizer_(&optimizer),
        reducer_(optimizer.gradients(), options, detail::parameters_of(optimizer)) {}
  // clang-format on

  /// Declares that this gradient is complete in this backward pass. Do not touch it until `reduce`
  /// or `step` returns. In the last pass of a step, this call starts the gradient's reduction, or
  /// that of its group once all are ready. From the first call in that pass until the end of the
  /// step, no gradient may move in memory; if one moves, the step can only be discarded. Throws
  /// InvalidArgument for an unknown name, for a gradient that is already ready, and between
  /// `synchronize` and the end of the step.
  void ready(const std::string& name) {
    reducer_.ready(name, [this] { return optimizer_->gradients(); });
  }

  /// Ends a backward pass other than the last of `backward_passes_per_step`; gradients continue to
  /// accumulate. Throws InvalidArgument in the last pass, which `step` ends. `step` may also follow
  /// fewer passes, for example at the end of the data, if it does so on all ranks.
  void end_pass() { reducer_.end_pass(); }

  /// Ends the backward pass: reduces all gradients and waits for them. Collective in the set.
  ReducedGradients reduce() { return ReducedGradients(reducer_.reduce(optimizer_->gradients())); }

  /// Scales the reduced gradients if their joint 2-norm exceeds `max_norm`, which must be positive.
  /// Returns the norm before scaling, with the same bits on all ranks of the set; infinity or NaN
  /// if a gradient has such an element. Collective in the set. Throws InvalidArgument for gradients
  /// of an earlier reduction, and for gradients that are integers or in GPU memory.
  double clip_grad_norm(ReducedGradients& gradients, double max_norm) {
    reducer_.require_current(gradients.reduction_, "clip_grad_norm()");
    return reducer_.clip(optimizer_->gradients(), max_norm);
  }

  /// Runs the optimizer's step. Throws InvalidArgument if gradients have changed since they were
  /// reduced: by `ready` or `end_pass`, or because another step has used them.
  void step(ReducedGradients gradients) {
    reducer_.require_current(gradients.reduction_, "step()");
    optimizer_->step();
    reducer_.end_step();
  }

  /// Reduces the gradients, unless `synchronize` has, and runs the optimizer's step.
  void step() {
    if (!reducer_.synchronized()) return step(reduce());
    optimizer_->step();
    reducer_.end_step();
  }

  /// Drops the gradients of this step and its passes. Collective in the set, even after a `join`,
  /// because reductions that some rank has begun must complete. If one rank discards a step that
  /// others apply, the next step throws Mismatch on all ranks.
  void discard() {
    reducer_.discard([this] { return optimizer_->gradients(); });
  }

  /// Reduces the gradients like `reduce`, for programs that keep no ReducedGradients. `step` or
  /// `skip_step` must follow: the next `step` applies the gradients as they are then, without
  /// reducing them.
  void synchronize() { reducer_.synchronize(optimizer_->gradients()); }

  /// Ends a step after `synchronize` without applying its gradients; the same as `discard`.
  void skip_step() { discard(); }

  /// Call it after a new session has begun. Discards an unfinished step, and compares names,
  /// shapes, dtypes and options between the ranks again, as the constructor does. Collective in the
  /// world; `elastic::State::sync` calls it. Throws InvalidArgument for an optimizer of a process
  /// set, which ends with its session.
  void rejoin() { reducer_.rejoin(optimizer_->gradients()); }

 private:
  Optimizer* optimizer_;
  detail::NamedGradientReducer reducer_;
};

/// Copies `root`'s tensors to every rank. Collective in the set; `root` is a world rank and a
/// member. Throws Mismatch on every rank, before any tensor changes, if names, shapes or dtypes
/// differ.
KOLO_EXPORT void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root,
                                      const ProcessSet& set = {});

/// Throws Mismatch on every rank of the set, naming the first tensor that differs and the ranks
/// that differ from the first one, unless the tensors are equal on all ranks, bit for bit. Compares
/// names, dtypes, shapes, and a hash of each tensor's bytes: two different tensors pass with a
/// probability of 5e-10. Collective. Throws InvalidArgument for an empty or repeated name and for
/// GPU memory. `kolo/torch.hpp` has versions for modules.
KOLO_EXPORT void require_equal(const std::vector<NamedTensor>& tensors, const ProcessSet& set = {});

}  // namespace kolo
