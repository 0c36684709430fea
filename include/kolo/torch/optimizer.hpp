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

/// Tensors with their names.
template <typename T>
concept ParameterNaming = std::same_as<T, NamedParameters> || std::same_as<T, ModuleTensors>;

namespace detail {

inline const NamedParameters& pairs_of(const NamedParameters& names) { return names; }
inline NamedParameters pairs_of(const ModuleTensors& names) { return names.pairs(); }

/// Reduces the gradients of one optimizer. Each parameter has a hook that submits its gradient when
/// backward has accumulated it. Hooks run on the thread of backward; everything else on the thread
/// that owns the optimizer, while no backward runs.
class GradientReducer {
 public:
  using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

  /// Collective. Without names, parameters are known by their position.
  KOLO_EXPORT GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                              const DistributedOptimizerOptions& options);
  KOLO_EXPORT GradientReducer(GradientReducer&&) noexcept;
  KOLO_EXPORT GradientReducer& operator=(GradientReducer&&) noexcept;
  KOLO_EXPORT ~GradientReducer();

  /// Submits what backward did not and waits for everything. Does nothing the second time in a
  /// step.
  KOLO_EXPORT void synchronize(const Groups& groups);

  /// The gradients of this step were used: backward may run again.
  KOLO_EXPORT void end_step();

  /// Gives up this step: waits for what was submitted in it, and forgets its backward passes.
  KOLO_EXPORT void discard(const Groups& groups);

  /// The loss, averaged or summed as the gradients are.
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);

  [[nodiscard]] KOLO_EXPORT const ProcessSet& process_set() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks hold weak pointers to it
};

}  // namespace detail

/// An optimizer of LibTorch whose gradients are averaged (or summed) over the ranks before each
/// step. It is a `Base`: everything that `Base` has is there.
///
///     kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
///                                          model->named_parameters());
///
/// The reduction of each gradient starts when backward has accumulated it, and overlaps the rest of
/// backward. With `backward_passes_per_step` above 1 it starts in the last of so many passes; a
/// step after fewer passes reduces what there is. Passes are counted on each rank, and
/// Accumulation::mean divides by those that this rank made. One pass more before `step` or
/// `zero_grad` gives InvalidArgument.
///
/// A parameter that took no part in backward has a gradient of zeros after `synchronize`.
/// Parameters that require no gradient are left out; those frozen, unfrozen, converted or added to
/// a group later are noticed at the next `synchronize` or `step`, and ranks must do so alike.
///
/// Sparse gradients stay sparse, and are coalesced: the ranks' indices and values are gathered, as
/// they are (neither compressed nor by adasum). A gradient must be sparse on all ranks or on none.
///
/// Construction is collective in the process set: its members make their optimizers in the same
/// order, and every one gets Mismatch if options, or names, shapes or dtypes of the parameters,
/// differ between them. It throws InvalidArgument if an option is wrong, a parameter of the
/// optimizer has no name, or a name occurs twice. Beside those of `allreduce`, errors in a gradient
/// are thrown by backward(), `synchronize` and `step`. Movable, not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class DistributedOptimizer<Base> : public Base {
 public:
  using typename Base::LossClosure;

  /// Names the parameters by their position in the optimizer.
  explicit DistributedOptimizer(Base optimizer, const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)), reducer_(this->param_groups(), std::nullopt, options) {}

  /// `names` holds at least the optimizer's parameters: what `named_parameters()` of a module
  /// gives, or a list of pairs.
  template <ParameterNaming Names>
  DistributedOptimizer(Base optimizer, const Names& names,
                       const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)),
        reducer_(this->param_groups(), detail::pairs_of(names), options) {}

  DistributedOptimizer(Base optimizer, std::initializer_list<NamedParameters::value_type> names,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::move(optimizer), NamedParameters(names), options) {}

  DistributedOptimizer(DistributedOptimizer&&) = default;

  /// Waits until this step's gradients are reduced, say to clip them. `step` then does not wait
  /// again.
  void synchronize() { reducer_.synchronize(this->param_groups()); }

  /// Who takes part.
  [[nodiscard]] const ProcessSet& process_set() const { return reducer_.process_set(); }

  /// Synchronizes, unless that was done, and steps. With a closure, the gradients of each of its
  /// evaluations are reduced and so is the loss it returns, so that line searches agree on all
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

  /// As `Base`'s, after finishing the reductions under way: the step that they belong to is given
  /// up.
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
