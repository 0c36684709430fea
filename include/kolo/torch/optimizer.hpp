// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer for LibTorch's optimizers.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/optimizer.h>

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/torch/state.hpp"

namespace kolo {

/// A type that holds tensors with their names.
template <typename T>
concept ParameterNaming = std::same_as<T, NamedParameters> || std::same_as<T, ModuleTensors>;

namespace detail {

inline const NamedParameters& pairs_of(const NamedParameters& names) { return names; }
inline NamedParameters pairs_of(const ModuleTensors& names) { return names.pairs(); }

/// Reduces the gradients of one optimizer. Each parameter has a hook that submits its gradient
/// after backward has accumulated it. Hooks run on backward's threads; everything else runs on the
/// thread that owns the optimizer, while no backward runs.
class GradientReducer {
 public:
  using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

  /// Collective. Without names, parameters are identified by their position.
  KOLO_EXPORT GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                              const DistributedOptimizerOptions& options);
  KOLO_EXPORT GradientReducer(GradientReducer&&) noexcept;
  KOLO_EXPORT GradientReducer& operator=(GradientReducer&&) noexcept;
  KOLO_EXPORT ~GradientReducer();

  /// Submits the gradients that backward did not submit, and waits for all. Further calls in the
  /// same step have no effect.
  KOLO_EXPORT void synchronize(const Groups& groups);

  /// Ends a step whose gradients were used. Backward may run again.
  KOLO_EXPORT void end_step();

  /// Ends a step without using its gradients.
  KOLO_EXPORT void skip_step(const Groups& groups);

  /// Discards a step: waits for its submitted operations and forgets its backward passes.
  KOLO_EXPORT void discard(const Groups& groups);

  /// Reduces the loss by sum if the gradients are summed, else by average.
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);

  [[nodiscard]] KOLO_EXPORT const ProcessSet& process_set() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks hold weak pointers to it
};

}  // namespace detail

/// A LibTorch optimizer that averages (or sums) its gradients over the ranks before each step. It
/// derives from `Base`, so `Base`'s members remain available.
///
///     kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
///                                          model->named_parameters());
///
/// The reduction of a gradient starts when backward has accumulated the gradient, and overlaps the
/// rest of backward. With `backward_passes_per_step` above 1 the reduction starts in the last pass;
/// a `step` after fewer passes reduces the gradients accumulated so far. Each rank counts its own
/// passes, and Accumulation::mean divides by the number of passes that this rank made. Backward
/// throws InvalidArgument in a further pass before `step` or `zero_grad`.
///
/// A parameter that is not part of backward contributes a zero gradient. Parameters that require no
/// gradient are skipped. Parameters may be frozen, unfrozen, converted or added to a parameter
/// group later, in the same way on all ranks: the next `synchronize`, `step` or `zero_grad` adapts
/// to it.
///
/// Sparse gradients stay sparse and are coalesced. Their indices and values are gathered from all
/// ranks, without compression; adasum does not support them. A gradient must be sparse on all ranks
/// or on none.
///
/// A rank that runs out of data calls `join` after its last step; the other ranks' averages are
/// then still divided by the number of all ranks. When all ranks have joined, they continue
/// together. If `join` cuts a step in which some gradients were submitted, the next backward pass
/// or step throws InvalidArgument until `skip_step` or `zero_grad`.
///
/// Construction is collective in the process set: its members construct their optimizers in the
/// same order. It throws Mismatch on every member if options, or the parameters' names, shapes or
/// dtypes, differ. It throws InvalidArgument for an invalid option, a parameter without a name, or
/// a repeated name. backward(), `synchronize`, `step` and `skip_step` throw the errors of
/// `allreduce`. Movable, not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class DistributedOptimizer<Base> : public Base {
 public:
  using typename Base::LossClosure;

  /// Identifies parameters by their position in the optimizer.
  explicit DistributedOptimizer(Base optimizer, const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)), reducer_(this->param_groups(), std::nullopt, options) {}

  /// `names` must cover all parameters of the optimizer: a module's `named_parameters()` or a list
  /// of pairs.
  template <ParameterNaming Names>
  DistributedOptimizer(Base optimizer, const Names& names,
                       const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)),
        reducer_(this->param_groups(), detail::pairs_of(names), options) {}

  DistributedOptimizer(Base optimizer, std::initializer_list<NamedParameters::value_type> names,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::move(optimizer), NamedParameters(names), options) {}

  DistributedOptimizer(DistributedOptimizer&&) = default;

  /// Waits until this step's gradients are reduced, for example to clip them. The next `step` then
  /// uses them without reducing again.
  void synchronize() { reducer_.synchronize(this->param_groups()); }

  /// The ranks that take part.
  [[nodiscard]] const ProcessSet& process_set() const { return reducer_.process_set(); }

  /// Calls `synchronize`, which has no effect if already called, then steps. With a closure, the
  /// gradients and the loss of each evaluation are reduced, so that line searches agree on all
  /// ranks.
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      synchronize();
      ::torch::Tensor nothing = Base::step(nullptr);
      reducer_.end_step();
      return nothing;
    }
    reducer_.discard(this->param_groups());
    return Base::step([this, &closure] {
      const ::torch::Tensor loss = closure();
      synchronize();
      reducer_.end_step();
      return reducer_.reduce_loss(loss);
    });
  }

  /// Ends the step without `Base`'s step, for example after an overflow in mixed precision.
  /// Synchronizes unless that is done; all ranks must skip the same steps. The gradients keep their
  /// values until `zero_grad`.
  void skip_step() { reducer_.skip_step(this->param_groups()); }

  /// As `Base`'s, but first discards the current step and waits for its pending reductions.
  template <typename... Arguments>
    requires requires(Base& base, Arguments... arguments) { base.zero_grad(arguments...); }
  void zero_grad(Arguments... arguments) {
    reducer_.discard(this->param_groups());
    Base::zero_grad(arguments...);
  }

 private:
  detail::GradientReducer reducer_;
};

template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer> DistributedOptimizer(
      Base, const DistributedOptimizerOptions& = {})
->DistributedOptimizer<Base>;

template <typename Base, ParameterNaming Names>
  requires std::derived_from<Base, ::torch::optim::Optimizer> DistributedOptimizer(
      Base, const Names&, const DistributedOptimizerOptions& = {})
->DistributedOptimizer<Base>;

template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer> DistributedOptimizer(
      Base, std::initializer_list<NamedParameters::value_type>,
      const DistributedOptimizerOptions& = {})
->DistributedOptimizer<Base>;

}  // namespace kolo
