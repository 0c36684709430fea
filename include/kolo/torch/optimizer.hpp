// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer for LibTorch's optimizers.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/optimizer.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/torch/state.hpp"

namespace kolo {

namespace internal {
class ModuleParameters;
class TorchGradientStorage;
}  // namespace internal

struct ClipOptions;  // in kolo/torch/gradients.hpp

/// A guard. While it lives, backward passes accumulate gradients on this rank only. Movable; guards
/// may nest.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::shared_ptr<std::atomic<int>> guards) : guards_(std::move(guards)) {
    ++*guards_;
  }
  NoSync(NoSync&&) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;
  ~NoSync() {
    if (guards_) --*guards_;
  }

 private:
  std::shared_ptr<std::atomic<int>> guards_;
};

namespace detail {

template <typename T>
concept AnyOptimizer = std::derived_from<std::remove_cvref_t<T>, ::torch::optim::Optimizer>;

/// Called by constructors that take an lvalue: does not compile, and says what to write instead.
template <typename Optimizer>
Optimizer&& must_be_moved(Optimizer& optimizer) {
  static_assert(sizeof(Optimizer) == 0,
                "pass std::move(optimizer), and use the wrapper from then on. To keep the "
                "optimizer as it is, make a kolo::DistributedGradients(model) instead");
  return std::move(optimizer);
}

/// The interface through which GradScaler and `clip_grad_norm` call a Distributed- or
/// ShardedOptimizer that is passed as a `torch::optim::Optimizer`.
class KOLO_EXPORT ReducingOptimizer {
 public:
  virtual ~ReducingOptimizer() = default;
  virtual void synchronize() = 0;
  virtual void skip_step() = 0;
  /// A number that is above 0 if `own` is on any rank, on the same device.
  [[nodiscard]] virtual ::torch::Tensor on_any_rank(::torch::Tensor own) const { return own; }
  virtual ::torch::Tensor clip_on_device(double max_norm, const ClipOptions& options) = 0;
  double clip_grad_norm(double max_norm, const ClipOptions& options);
  double clip_grad_norm(double max_norm);
};

/// Reduces the gradients of one optimizer or module. Each parameter has hooks that submit its
/// gradient after backward has accumulated it. They run on backward's threads, and the thread that
/// calls `backward()` ends the pass. Everything else runs on the thread that owns the optimizer,
/// while no backward runs.
class GradientReducer {
 public:
  using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

  /// Collective. Without names, parameters are identified by their position. `watches_steps`:
  /// whether `end_step` is called after each step. `source`: the storage of the gradients; null if
  /// the parameters hold them.
  KOLO_EXPORT GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                              const DistributedOptimizerOptions& options, bool watches_steps = true,
                              std::shared_ptr<internal::TorchGradientStorage> source = nullptr);
  /// Collective. For all parameters that the module has, or lists, now or later.
  KOLO_EXPORT GradientReducer(::torch::nn::Module& module,
                              const DistributedOptimizerOptions& options);
  KOLO_EXPORT GradientReducer(std::function<NamedParameters()> module,
                              const DistributedOptimizerOptions& options);
  KOLO_EXPORT GradientReducer(GradientReducer&&) noexcept;
  KOLO_EXPORT GradientReducer& operator=(GradientReducer&&) noexcept;
  KOLO_EXPORT ~GradientReducer();

  /// Reduces the gradients that backward has not reduced: those of passes on this rank only, or all
  /// gradients if there was no pass. Otherwise no effect. Without `groups`: for a module.
  KOLO_EXPORT void synchronize(const Groups& groups);
  KOLO_EXPORT void synchronize();

  /// Synchronizes, then scales the gradients. Returns the norm before.
  KOLO_EXPORT ::torch::Tensor clip(const Groups& groups, double max, const ClipOptions& options);

  /// Ends a step. The next counts its passes from zero.
  KOLO_EXPORT void end_step();
  /// Synchronizes, and discards the passes of this step. Drops a step that a join has interrupted.
  KOLO_EXPORT void skip(const Groups& groups);
  /// Discards the passes of this step.
  KOLO_EXPORT void discard(const Groups& groups);
  /// Prepares a step with a closure: passes count from zero, and earlier gradients are kept.
  KOLO_EXPORT void begin_evaluations(const Groups& groups);

  /// Called after a new session has begun: drops all gradients, and compares the ranks again.
  /// `source`: see the constructor. Without arguments: for a module. Collective.
  KOLO_EXPORT void rejoin(const Groups& groups,
                          std::shared_ptr<internal::TorchGradientStorage> source = nullptr);
  KOLO_EXPORT void rejoin();

  [[nodiscard]] KOLO_EXPORT NoSync no_sync() const;
  /// Reduces the loss by sum if the gradients are summed, otherwise by average.
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);

  [[nodiscard]] KOLO_EXPORT const ProcessSet& process_set() const;
  /// The optimizer's parameters with their names. A parameter that replaced another one has the
  /// name of the replaced parameter.
  [[nodiscard]] KOLO_EXPORT NamedParameters named(const Groups& groups) const;

  /// The number of the optimizer in its set.
  [[nodiscard]] KOLO_EXPORT std::int64_t number() const;

 private:
  struct State;

  GradientReducer(const std::shared_ptr<internal::ModuleParameters>& module,
                  const DistributedOptimizerOptions& options);

  std::shared_ptr<State> state_;  // hooks hold weak pointers to it
};

}  // namespace detail

/// A LibTorch optimizer whose gradients are averages (or sums) over the ranks. It derives from
/// `Base`, so `Base`'s members remain available.
///
///     kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
///                                          model->named_parameters());
///
/// When `backward()` returns, the gradients of this optimizer's parameters are final. Any
/// optimizer, clipping or a second model may use them. The reduction of a gradient starts when
/// backward has accumulated it, and overlaps the rest of backward. So backward waits for the other
/// ranks, and throws the errors of `allreduce`. If it throws on one rank for a reason of its own,
/// the other ranks get BackwardFailed; call `zero_grad`, and the next pass is reduced.
///
/// There may be any number of backward passes before a step, including partial ones, if all ranks
/// make the same passes: a rank that is a pass or a step ahead gets Mismatch. A call of `backward`
/// inside another one belongs to the pass of the outer call, and its gradients are final when this
/// pass ends. Ranks may make different nested calls. Gradients accumulate, and each pass reduces
/// only what it has added; meanwhile, gradients that are already reduced are kept in separate
/// memory. In `no_sync`, and before the last of `backward_passes_per_step`, gradients accumulate on
/// this rank only; the next pass that reduces includes them, and so does `step` after fewer passes.
/// Accumulation::mean divides each pass by `backward_passes_per_step`, and if a step had fewer, by
/// the passes that this rank made.
///
/// If a rank does not use a parameter in a pass, it contributes zeros. If no rank uses it, its
/// gradient is left as it is: an undefined gradient stays undefined, and the optimizer skips it.
/// Parameters that require no gradient are skipped. Parameters may be frozen, unfrozen, converted
/// or added to a parameter group later, in the same way on all ranks: the next pass or `step`
/// adapts. Optimizers with equal options may share parameters, which are reduced once.
/// `torch::autograd::grad` reduces nothing. `backward` throws InvalidArgument if `create_graph` is
/// set or the gradients of two parameters share memory.
///
/// Sparse gradients stay sparse and are coalesced. Their indices and values are gathered from all
/// ranks, without compression; adasum does not support them. A gradient must be sparse on all ranks
/// that have one, or on none.
///
/// A rank that runs out of data calls `join` after its last step; the other ranks' averages are
/// then still divided by the number of all ranks. When all ranks have joined, they continue
/// together. Passes without reduction that a rank made before its `join` belong to no step and are
/// dropped; `zero_grad` drops their gradients. If the next call on that rank is `synchronize` or
/// `step`, it throws InvalidArgument once.
///
/// Construction is collective in the process set: its members construct their optimizers in the
/// same order. It throws Mismatch on every member if options, or the parameters' names, shapes or
/// dtypes, differ. It throws InvalidArgument for an invalid option, a parameter without a name, or
/// a repeated name. backward(), `synchronize` and `step` throw the errors of `allreduce`. Movable,
/// not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class DistributedOptimizer<Base> : public Base, public detail::ReducingOptimizer {
  static_assert(!std::is_abstract_v<Base>,
                "wrap an object of the optimizer's own class, such as torch::optim::Adam. For one "
                "behind a pointer or reference, make a kolo::DistributedGradients(model) instead");

 public:
  using typename Base::LossClosure;

  /// Takes over an optimizer: a temporary, or `std::move(optimizer)`. Identifies parameters by
  /// their position in the optimizer.
  explicit DistributedOptimizer(Base&& optimizer, const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)), reducer_(this->param_groups(), std::nullopt, options) {}

  /// Identifies parameters by `names`: a module, its `named_parameters()` or a list of pairs, which
  /// must cover all parameters of the optimizer.
  template <detail::NamesParameters Names>
  DistributedOptimizer(Base&& optimizer, const Names& names,
                       const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)),
        reducer_(this->param_groups(), detail::names_of(names), options) {}

  DistributedOptimizer(Base&& optimizer, std::initializer_list<NamedParameters::value_type> names,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::move(optimizer), NamedParameters(names), options) {}

  /// Refuses, at compile time, an optimizer that is passed without `std::move`.
  template <std::same_as<Base> Lvalue, typename Names = DistributedOptimizerOptions>
  explicit DistributedOptimizer(Lvalue& optimizer, const Names& = {},
                                const DistributedOptimizerOptions& = {})
      : DistributedOptimizer(detail::must_be_moved(optimizer)) {}

  DistributedOptimizer(DistributedOptimizer&&) = default;

  /// Reduces gradients that `backward` has left on this rank: those of passes in `no_sync` or
  /// before the last of `backward_passes_per_step`, or, without a pass since the last step, all
  /// gradients, with zeros for gradients that are defined only on other ranks. Otherwise it does
  /// nothing.
  void synchronize() override { reducer_.synchronize(this->param_groups()); }

  ::torch::Tensor clip_on_device(double max_norm, const ClipOptions& options) override {
    return reducer_.clip(this->param_groups(), max_norm, options);
  }

  /// Returns a guard; while it lives, backward passes accumulate gradients on this rank only.
  [[nodiscard]] NoSync no_sync() const { return reducer_.no_sync(); }

  /// The ranks that take part.
  [[nodiscard]] const ProcessSet& process_set() const { return reducer_.process_set(); }

  /// Calls `synchronize`, then steps. A rank without a backward pass contributes zeros. With a
  /// closure, the gradients and the loss of each evaluation are reduced, so that line searches
  /// agree on all ranks.
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      synchronize();
      ::torch::Tensor nothing = Base::step(nullptr);
      reducer_.end_step();
      return nothing;
    }
    reducer_.begin_evaluations(this->param_groups());
    return Base::step([this, &closure] {
      const ::torch::Tensor loss = closure();
      synchronize();
      reducer_.end_step();
      return reducer_.reduce_loss(loss);
    });
  }

  /// Reduces like `synchronize`, and drops the step, for example after an overflow in mixed
  /// precision. All ranks must skip the same steps: if one skips alone, the next pass raises
  /// Mismatch. The gradients keep their values until `zero_grad`. If every rank has had a backward
  /// pass that reduced, not calling `step` does the same.
  void skip_step() override { reducer_.skip(this->param_groups()); }

  /// Call it after a new session has begun. Drops all gradients, discards an unfinished step, and
  /// compares parameters and options between the ranks again, as the constructor does. Collective
  /// in the world; `elastic::State::sync` calls it. Throws InvalidArgument for an optimizer of a
  /// process set, which ends with its session.
  void rejoin() { reducer_.rejoin(this->param_groups()); }

  /// Calls `Base::zero_grad`, and restarts the count of `backward_passes_per_step`. You may call
  /// the module's `zero_grad` instead, but it does not restart this count.
  template <typename... Arguments>
    requires requires(Base& base, Arguments... arguments) { base.zero_grad(arguments...); }
  void zero_grad(Arguments... arguments) {
    reducer_.discard(this->param_groups());
    Base::zero_grad(arguments...);
  }

 private:
  detail::GradientReducer reducer_;
};

template <detail::AnyOptimizer Base>
DistributedOptimizer(Base&&, const DistributedOptimizerOptions& = {})
    -> DistributedOptimizer<std::remove_cvref_t<Base>>;
template <detail::AnyOptimizer Base, detail::NamesParameters Names>
DistributedOptimizer(Base&&, const Names&, const DistributedOptimizerOptions& = {})
    -> DistributedOptimizer<std::remove_cvref_t<Base>>;
template <detail::AnyOptimizer Base>
DistributedOptimizer(Base&&, std::initializer_list<NamedParameters::value_type>,
                     const DistributedOptimizerOptions& = {})
    -> DistributedOptimizer<std::remove_cvref_t<Base>>;

}  // namespace kolo
