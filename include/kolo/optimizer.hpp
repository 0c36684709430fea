// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: averages an optimizer's gradients over the ranks before each step.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// How the gradients of several backward passes are combined: summed or averaged.
enum class Accumulation : std::uint8_t { sum, mean };

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
  ProcessSet process_set{};      ///< Ranks that take part. On other ranks the optimizer only steps.
};

/// A custom optimizer. `gradients()` returns the named gradients, always the same names in the same
/// order; `step()` uses them. Gradients are reduced in place.
template <typename T>
concept GradientOptimizer = requires(T& optimizer) {
  { optimizer.gradients() } -> std::convertible_to<std::vector<NamedTensor>>;
  optimizer.step();
};

namespace detail {

/// Reduces the named gradients of one optimizer. Not thread-safe.
class NamedGradientReducer {
 public:
  using Gradients = std::vector<NamedTensor>;

  /// Collective.
  KOLO_EXPORT NamedGradientReducer(const Gradients& gradients,
                                   const DistributedOptimizerOptions& options);
  KOLO_EXPORT NamedGradientReducer(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT NamedGradientReducer& operator=(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT ~NamedGradientReducer();

  /// Calls `gradients` at most once in a step.
  KOLO_EXPORT void ready(const std::string& name, const std::function<Gradients()>& gradients);
  KOLO_EXPORT void end_pass();
  KOLO_EXPORT void synchronize(const Gradients& gradients);
  [[nodiscard]] KOLO_EXPORT bool synchronized() const;
  KOLO_EXPORT void skip_step(const std::function<Gradients()>& gradients);
  KOLO_EXPORT void end_step();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Reduces the gradients of a custom optimizer over the ranks before each of its steps:
///
///     kolo::DistributedOptimizer optimizer(model, {.op = kolo::ReduceOp::average});
///     ...                         // compute the gradients
///     optimizer.ready("weight");  // optional: starts the reduction of a complete gradient
///     optimizer.step();           // reduces the others, waits for all, and steps
///
/// Construction is collective: all ranks of the set construct their optimizers in the same order.
/// It throws Mismatch on every rank if names, shapes, dtypes or options differ, and InvalidArgument
/// for invalid options or a repeated name. `synchronize`, `step` and `skip_step` throw the errors
/// of `allreduce`; after an error the step is over on all ranks. The wrapped optimizer must outlive
/// this object. Movable, not copyable; not thread-safe. `kolo/torch.hpp` has the version for
/// LibTorch's optimizers.
///
/// A rank that runs out of data calls `join` after its last step; the other ranks' averages are
/// then still divided by the number of all ranks. When all ranks have joined, they continue
/// together. If `join` cuts a step in which some gradients were submitted, `synchronize` and `step`
/// throw InvalidArgument until `skip_step`. If `join` cuts a step before any gradient was
/// submitted, the backward passes of that step are dropped, and the next call begins a new step.
/// `skip_step` then only drops the passes and does not involve other ranks.
template <typename Optimizer>
class DistributedOptimizer {
 public:
  // clang-format off
  explicit DistributedOptimizer(Optimizer& optimizer,
                                const DistributedOptimizerOptions& options = {})
    requires GradientOptimizer<Optimizer>
      : optimizer_(&optimizer), reducer_(optimizer.gradients(), options) {}
  // clang-format on

  /// Declares that this gradient is complete in this backward pass. Do not touch it until
  /// `synchronize` or `step` returns. In the last pass of a step its reduction starts; a group's
  /// starts when all its gradients are ready. From the first call in that pass until the end of the
  /// step, no gradient may move in memory; a step with one that moved can only be skipped. Throws
  /// InvalidArgument for an unknown name, for a gradient that is already ready, and between
  /// `synchronize` and the end of the step.
  void ready(const std::string& name) {
    reducer_.ready(name, [this] { return optimizer_->gradients(); });
  }

  /// Ends a backward pass other than the last of `backward_passes_per_step`; gradients continue to
  /// accumulate. Throws InvalidArgument for one pass too many. `step` may follow after fewer
  /// passes, for example at the end of the data, if it does on all ranks.
  void end_pass() { reducer_.end_pass(); }

  /// Waits until all gradients are reduced, for example to clip or to inspect them. `step` or
  /// `skip_step` must follow: another call before it throws InvalidArgument.
  void synchronize() { reducer_.synchronize(optimizer_->gradients()); }

  /// Calls `synchronize`, which has no effect if already called, then runs the optimizer's step.
  void step() {
    if (!reducer_.synchronized()) synchronize();
    optimizer_->step();
    reducer_.end_step();
  }

  /// Ends the step without the optimizer's step, for example after an overflow in mixed precision.
  /// Synchronizes unless that is done; all ranks must skip the same steps:
  ///
  ///     optimizer.synchronize();
  ///     if (all_finite(gradients)) optimizer.step(); else optimizer.skip_step();
  void skip_step() {
    reducer_.skip_step([this] { return optimizer_->gradients(); });
  }

 private:
  Optimizer* optimizer_;
  detail::NamedGradientReducer reducer_;
};

/// Copies `root`'s tensors to every rank. Collective in the set; `root` is a world rank and a
/// member. Throws Mismatch on every rank, before any tensor changes, if names, shapes or dtypes
/// differ.
KOLO_EXPORT void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root,
                                      const ProcessSet& set = {});

}  // namespace kolo
