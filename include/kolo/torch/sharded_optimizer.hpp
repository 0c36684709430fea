// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer for LibTorch's optimizers: each rank keeps a part of their state.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/torch/clip_gradients.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/state.hpp"

namespace kolo {

/// Whether the optimizer treats each element of a parameter by itself, so that it can step parts of
/// parameters. Specialize it for an optimizer of your own.
template <typename Base>
inline constexpr bool is_elementwise_optimizer =
    std::derived_from<Base, ::torch::optim::SGD> || std::derived_from<Base, ::torch::optim::Adam> ||
    std::derived_from<Base, ::torch::optim::AdamW> ||
    std::derived_from<Base, ::torch::optim::RMSprop> ||
    std::derived_from<Base, ::torch::optim::Adagrad>;

namespace detail {

/// Tells a ShardedOptimizer of any base class.
class ShardedBase {
 public:
  virtual ~ShardedBase() = default;

 protected:
  ShardedBase() = default;
  ShardedBase(ShardedBase&&) noexcept = default;
  ShardedBase& operator=(ShardedBase&&) noexcept = default;
  ShardedBase(const ShardedBase&) = default;
  ShardedBase& operator=(const ShardedBase&) = default;
};

/// The parts of one optimizer's parameters. Functions take the optimizer, which may be moved.
class ShardedReducer {
 public:
  using Optimizer = ::torch::optim::Optimizer;

  /// Collective. Replaces the optimizer's parameters by their parts.
  KOLO_EXPORT ShardedReducer(Optimizer& optimizer, const std::optional<NamedParameters>& names,
                             const DistributedOptimizerOptions& options, Sharding sharding);
  KOLO_EXPORT ShardedReducer(ShardedReducer&&) noexcept;
  KOLO_EXPORT ShardedReducer& operator=(ShardedReducer&&) noexcept;
  KOLO_EXPORT ~ShardedReducer();

  /// Reduces what is left to reduce; the parts have their gradients then.
  KOLO_EXPORT void synchronize(Optimizer& optimizer);
  /// As `synchronize`. Throws Mismatch if a rank has joined.
  KOLO_EXPORT void begin_step(Optimizer& optimizer);
  /// After the parts were stepped: gathers the parameters.
  KOLO_EXPORT void end_step();
  KOLO_EXPORT void skip(Optimizer& optimizer);
  KOLO_EXPORT void discard(Optimizer& optimizer);
  /// Before and after the optimizer zeroes the gradients of its parts.
  KOLO_EXPORT void prepare_zero_grad(Optimizer& optimizer);
  KOLO_EXPORT void finish_zero_grad();
  [[nodiscard]] KOLO_EXPORT NoSync no_sync() const;
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);
  [[nodiscard]] KOLO_EXPORT const ProcessSet& process_set() const;
  [[nodiscard]] KOLO_EXPORT bool all_ranks(bool condition) const;
  [[nodiscard]] KOLO_EXPORT double clip_grad_norm(Optimizer& optimizer, double max_norm,
                                                  const ClipOptions& options);
  [[nodiscard]] KOLO_EXPORT std::string whole_state(const Optimizer& optimizer, int root) const;
  KOLO_EXPORT void load_whole_state(const std::string& bytes, Optimizer& optimizer);
  KOLO_EXPORT void save_state(const std::filesystem::path& folder,
                              const Optimizer& optimizer) const;
  KOLO_EXPORT void load_state(const std::filesystem::path& folder, Optimizer& optimizer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// A LibTorch optimizer as DistributedOptimizer, but each rank keeps and steps only its part of
/// each parameter. With n ranks, the optimizer's state takes 1/n of the memory on each, and so do
/// reduced gradients (Rajbhandari et al., 2020, "ZeRO", https://arxiv.org/abs/1910.02054):
///
///     kolo::ShardedOptimizer optimizer(torch::optim::AdamW(model->parameters(), 1e-3),
///                                      model->named_parameters());
///
/// Parameters stay whole on all ranks, and are equal there if they were at construction: call
/// `broadcast_parameters` first. They have the same bits as with DistributedOptimizer. Only sharded
/// gradients may differ: with compression, because their sums are not rounded to the type that
/// travels, and in the last bits if the ranks are on several hosts, because these are added in
/// another order. The elements of a parameter, in their order in memory, are divided by
/// `reducescatter_rows`.
///
/// Base is an optimizer that treats each element by itself (`is_elementwise_optimizer`): SGD, Adam,
/// AdamW, RMSprop or Adagrad. Its `param_groups()` hold the parts, as tensors of one dimension; set
/// options there as usual. Parameters may be added later, and `torch::load` may replace their
/// memory, but their dtype and device must stay.
///
/// A reduction sends each gradient's parts to the ranks that keep them, while backward runs, and
/// then frees the gradient: a parameter's own gradient is not a gradient any more, but reads as
/// NaN. `clip_grad_norm` and GradScaler know the parts. Passes in `no_sync`, and all but the last
/// of `backward_passes_per_step`, accumulate whole gradients. With `Sharding::state`, gradients are
/// whole and final as with DistributedOptimizer, until clipping or GradScaler changes this rank's
/// parts of them. `step` ends with an allgather of the parameters.
///
/// Every rank steps its parts, so a rank without data cannot `join`: the others get Mismatch. It
/// calls `step` without a backward pass instead. Sparse gradients become dense.
///
/// Construction is collective, and throws as DistributedOptimizer's; also InvalidArgument for
/// adasum, for a communication hook unless `Sharding::state`, for a parameter with gaps in memory,
/// and for one that another optimizer of Kolo's reduces. Movable, not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class ShardedOptimizer<Base> : public Base, public detail::ShardedBase {
  static_assert(is_elementwise_optimizer<Base>,
                "ShardedOptimizer needs an optimizer that treats each element by itself");

 public:
  using typename Base::LossClosure;

  /// Identifies parameters by their position in the optimizer.
  explicit ShardedOptimizer(Base optimizer, const DistributedOptimizerOptions& options = {},
                            Sharding sharding = Sharding::state_and_gradients)
      : Base(std::move(optimizer)), reducer_(*this, std::nullopt, options, sharding) {}

  /// `names` must cover all parameters of the optimizer: a module's `named_parameters()` or a list
  /// of pairs.
  template <ParameterNaming Names>
  ShardedOptimizer(Base optimizer, const Names& names,
                   const DistributedOptimizerOptions& options = {},
                   Sharding sharding = Sharding::state_and_gradients)
      : Base(std::move(optimizer)), reducer_(*this, detail::pairs_of(names), options, sharding) {}

  ShardedOptimizer(Base optimizer, std::initializer_list<NamedParameters::value_type> names,
                   const DistributedOptimizerOptions& options = {},
                   Sharding sharding = Sharding::state_and_gradients)
      : ShardedOptimizer(std::move(optimizer), NamedParameters(names), options, sharding) {}

  ShardedOptimizer(ShardedOptimizer&&) = default;

  /// As DistributedOptimizer's. The parts in `param_groups()` have their gradients then.
  void synchronize() { reducer_.synchronize(*this); }

  /// Backward passes stay on this rank while the guard lives.
  [[nodiscard]] NoSync no_sync() const { return reducer_.no_sync(); }

  /// The ranks that take part.
  [[nodiscard]] const ProcessSet& process_set() const { return reducer_.process_set(); }

  /// Calls `synchronize`, steps this rank's parts, and gathers the parameters. Collective in the
  /// set, as `skip_step`: if one rank steps and another skips, all get Mismatch, and the parameters
  /// have no meaning until they are loaded or broadcast again. With a closure, the gradients and
  /// the loss are reduced.
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    ::torch::Tensor loss;
    if (closure == nullptr) {
      reducer_.begin_step(*this);
      loss = Base::step(nullptr);
    } else {
      reducer_.discard(*this);
      loss = Base::step([this, &closure] {
        const ::torch::Tensor own = closure();
        reducer_.begin_step(*this);
        return reducer_.reduce_loss(own);
      });
    }
    reducer_.end_step();
    return loss;
  }

  /// As DistributedOptimizer's.
  void skip_step() { reducer_.skip(*this); }

  /// As `Base`'s, for parts and for whole gradients. A module's `zero_grad` does the same, except
  /// that it does not reset the count of `backward_passes_per_step`.
  template <typename... Arguments>
    requires requires(Base& base, Arguments... arguments) { base.zero_grad(arguments...); }
  void zero_grad(Arguments... arguments) {
    reducer_.prepare_zero_grad(*this);
    Base::zero_grad(arguments...);
    reducer_.finish_zero_grad();
  }

  /// True if `condition` is true on all ranks of the set, in which it is collective.
  [[nodiscard]] bool all_ranks(bool condition) const { return reducer_.all_ranks(condition); }

  /// As `kolo::clip_grad_norm`, which calls it: scales this rank's parts by the joint norm.
  double clip_grad_norm(double max_norm, const ClipOptions& options = {}) {
    return reducer_.clip_grad_norm(*this, max_norm, options);
  }

  /// The state of all ranks, as `to_bytes` returns it for a DistributedOptimizer of the same
  /// parameters: it can be loaded on any number of ranks, by one of these as well. On ranks other
  /// than `root`, a world rank, it is empty. Tensors are gathered one after another, so ranks other
  /// than the root need little memory. Collective in the set.
  ///
  ///     checkpoints.save(step, {{"model", kolo::to_bytes(*model)},
  ///                             {"optimizer", optimizer.whole_state(0)}});
  [[nodiscard]] std::string whole_state(int root) const {
    return reducer_.whole_state(*this, root);
  }

  /// Takes this rank's parts of what `whole_state` or a DistributedOptimizer's `to_bytes` returned.
  /// Not collective. Throws InvalidArgument, before anything changes, for other bytes.
  void load_whole_state(const std::string& bytes) { reducer_.load_whole_state(bytes, *this); }

  /// Each rank writes its parts of the state into a file of its own in `folder`, which all ranks of
  /// the set share and which is made if it is missing. An index, written last, makes the state
  /// complete; that of an earlier state in the folder is removed first, so use a new folder for
  /// each. If a rank fails, all ranks throw an Error that names it. Collective in the set; other
  /// ranks write nothing.
  void save_state(const std::filesystem::path& folder) const { reducer_.save_state(folder, *this); }

  /// Reads this rank's parts of a state that any number of ranks have saved. Each rank reads the
  /// files that have them, one after another. If a rank fails, because files are missing, damaged
  /// or of other parameters, all ranks throw an Error that names it, and its state is as before.
  /// Collective in the set.
  void load_state(const std::filesystem::path& folder) { reducer_.load_state(folder, *this); }

 private:
  detail::ShardedReducer reducer_;
};

template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer> ShardedOptimizer(
      Base, const DistributedOptimizerOptions& = {}, Sharding = Sharding::state_and_gradients)
->ShardedOptimizer<Base>;

template <typename Base, ParameterNaming Names>
  requires std::derived_from<Base, ::torch::optim::Optimizer> ShardedOptimizer(
      Base, const Names&, const DistributedOptimizerOptions& = {},
      Sharding = Sharding::state_and_gradients)
->ShardedOptimizer<Base>;

template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer> ShardedOptimizer(
      Base, std::initializer_list<NamedParameters::value_type>,
      const DistributedOptimizerOptions& = {}, Sharding = Sharding::state_and_gradients)
->ShardedOptimizer<Base>;

/// As for a DistributedOptimizer, with the same norm on all ranks. It is summed over the ranks'
/// parts, so its last bits may differ from those of a DistributedOptimizer.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
double clip_grad_norm(ShardedOptimizer<Base>& optimizer, double max_norm,
                      const ClipOptions& options = {}) {
  return optimizer.clip_grad_norm(max_norm, options);
}

}  // namespace kolo
