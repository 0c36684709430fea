// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer for LibTorch's optimizers: each rank keeps one shard of the optimizer's state.
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
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/torch/gradients.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/state.hpp"

namespace kolo {

/// Whether the optimizer updates each element of a parameter independently, so that it can update
/// shards. Specialize it for an elementwise optimizer of your own, but not for an optimizer that
/// uses the norm of a parameter, such as LARS and LAMB.
template <typename Base>
inline constexpr bool is_elementwise_optimizer =
    std::same_as<Base, ::torch::optim::SGD> || std::same_as<Base, ::torch::optim::Adam> ||
    std::same_as<Base, ::torch::optim::AdamW> || std::same_as<Base, ::torch::optim::RMSprop> ||
    std::same_as<Base, ::torch::optim::Adagrad>;

namespace detail {

/// The interface of every ShardedOptimizer, independent of `Base`.
class KOLO_EXPORT ShardedBase : public ReducingOptimizer {
 public:
  /// This rank's position in the set, such as "2 of 4".
  [[nodiscard]] virtual std::string place() const = 0;
  /// Describes the whole parameters, to find out whether a state is of the same ones.
  [[nodiscard]] virtual std::string describe_parameters() const = 0;
  /// Replaces parameters that were added since the last call by their shards.
  virtual void adopt_parameters() = 0;
  virtual void save_shards(::torch::serialize::OutputArchive& archive) const = 0;
  virtual void load_shards(::torch::serialize::InputArchive& archive) = 0;
};

/// The shards of one optimizer's parameters. Functions take the optimizer, which may be moved.
class ShardedReducer {
 public:
  using Optimizer = ::torch::optim::Optimizer;

  /// Collective. Replaces the optimizer's parameters with their shards.
  KOLO_EXPORT ShardedReducer(Optimizer& optimizer, const std::optional<NamedParameters>& names,
                             const DistributedOptimizerOptions& options, Sharding sharding);
  KOLO_EXPORT ShardedReducer(ShardedReducer&&) noexcept;
  KOLO_EXPORT ShardedReducer& operator=(ShardedReducer&&) noexcept;
  KOLO_EXPORT ~ShardedReducer();

  /// Reduces the gradients that backward has not reduced. The shards then have gradients.
  KOLO_EXPORT void synchronize(Optimizer& optimizer);
  KOLO_EXPORT void adopt(Optimizer& optimizer);
  /// Calls `synchronize`. Throws Mismatch if a rank has joined.
  KOLO_EXPORT void begin_step(Optimizer& optimizer);
  /// Gathers the parameters after the shards were updated.
  KOLO_EXPORT void end_step();
  KOLO_EXPORT void skip(Optimizer& optimizer);
  KOLO_EXPORT void discard(Optimizer& optimizer);
  KOLO_EXPORT void begin_evaluations(Optimizer& optimizer);
  /// Called before and after the optimizer zeroes the gradients of its shards.
  KOLO_EXPORT void prepare_zero_grad(Optimizer& optimizer);
  KOLO_EXPORT void finish_zero_grad();
  [[nodiscard]] KOLO_EXPORT NoSync no_sync() const;
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);
  [[nodiscard]] KOLO_EXPORT const ProcessSet& process_set() const;
  [[nodiscard]] KOLO_EXPORT std::string place() const;
  [[nodiscard]] KOLO_EXPORT bool all_ranks(bool condition) const;
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor on_any_rank(::torch::Tensor own) const;
  KOLO_EXPORT ::torch::Tensor clip(Optimizer& optimizer, double max, const ClipOptions& options);
  /// `root`: `all_ranks_get_it`, or a world rank.
  [[nodiscard]] KOLO_EXPORT StateDict full_state(const Optimizer& optimizer, int root) const;
  static constexpr int all_ranks_get_it = -1;
  KOLO_EXPORT void rejoin(Optimizer& optimizer);
  KOLO_EXPORT void load_full_state(const StateView& state, Optimizer& optimizer);
  KOLO_EXPORT void load_sharded_state(const std::vector<StateView>& saved, Optimizer& optimizer);
  /// The dtypes and shapes of the parameters, as JSON.
  [[nodiscard]] KOLO_EXPORT std::string describe_parameters(const Optimizer& optimizer) const;
  [[noreturn]] KOLO_EXPORT static void refuse_archive(const char* call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// A DistributedOptimizer in which each of n ranks updates one shard of each parameter, and holds
/// 1/n of the optimizer's state and of the reduced gradients (Rajbhandari et al., 2020, "ZeRO",
/// https://arxiv.org/abs/1910.02054):
///
///     kolo::ShardedOptimizer optimizer(torch::optim::AdamW(model->parameters(), 1e-3),
///                                      model->named_parameters());
///
/// Parameters stay full on all ranks, and stay equal if they start equal: call
/// `broadcast_parameters` first. Unless steps are clipped, `Sharding::state` gives the same
/// parameters as DistributedOptimizer, bit for bit. `state_and_gradients` does too if tensors are
/// on CPUs and there is no compression. With compression, its sums are not rounded to the wire
/// type. Clipping adds the squares of the shards, so its factor may differ in the last bits. The
/// elements of a parameter, in memory order, are split as by `reducescatter_rows`.
///
/// Base must be elementwise: SGD, Adam, AdamW, RMSprop, Adagrad, or a class for which
/// `is_elementwise_optimizer` is specialized. Its `param_groups()` hold the shards, which are 1-D
/// views of the parameters; set options there as usual. Parameters may be added later, full-size
/// and in the same way on all ranks, and `torch::load` may replace their memory, but their dtype
/// and device must not change.
///
/// While backward runs, each gradient is reduce-scattered and then freed. `parameter.grad()` then
/// reads as NaN; the shards in `param_groups()` have the gradients. `kolo::clip_grad_norm` and
/// GradScaler use the shards. Passes in `no_sync`, and all but the last of
/// `backward_passes_per_step`, accumulate full gradients. With `Sharding::state`, gradients are
/// full and final as with DistributedOptimizer, until clipping or GradScaler changes this rank's
/// shards of them. `step` ends with an allgather of the parameters, without compression.
///
/// Every rank must update its shards. If one calls `join`, backward or `step` throws Mismatch on
/// the others. A rank that runs out of data calls `zero_grad` and `step` without backward instead.
/// Sparse gradients become dense.
///
/// Construction is collective. It throws the errors of DistributedOptimizer's constructor, and
/// InvalidArgument for adasum, for a communication hook with `state_and_gradients`, for a parameter
/// that is not dense in memory, and for a parameter that another Kolo optimizer reduces. Movable,
/// not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class ShardedOptimizer<Base> : public Base, public detail::ShardedBase {
  static_assert(is_elementwise_optimizer<Base>,
                "ShardedOptimizer needs an optimizer that treats each element by itself");

 public:
  using typename Base::LossClosure;

  /// Takes over an optimizer: a temporary, or `std::move(optimizer)`. Identifies parameters by
  /// their position in the optimizer.
  explicit ShardedOptimizer(Base&& optimizer, const DistributedOptimizerOptions& options = {},
                            Sharding sharding = Sharding::state_and_gradients)
      : Base(std::move(optimizer)), reducer_(*this, std::nullopt, options, sharding) {}

  /// Identifies parameters by `names`: a module, its `named_parameters()` or a list of pairs, which
  /// must cover all parameters of the optimizer.
  template <detail::NamesParameters Names>
  ShardedOptimizer(Base&& optimizer, const Names& names,
                   const DistributedOptimizerOptions& options = {},
                   Sharding sharding = Sharding::state_and_gradients)
      : Base(std::move(optimizer)), reducer_(*this, detail::names_of(names), options, sharding) {}

  ShardedOptimizer(Base&& optimizer, std::initializer_list<NamedParameters::value_type> names,
                   const DistributedOptimizerOptions& options = {},
                   Sharding sharding = Sharding::state_and_gradients)
      : ShardedOptimizer(std::move(optimizer), NamedParameters(names), options, sharding) {}

  /// Takes an optimizer that was not moved. Does not compile, and says what to write instead.
  template <std::same_as<Base> Lvalue, typename Names = DistributedOptimizerOptions>
  explicit ShardedOptimizer(Lvalue& optimizer, const Names& = {},
                            const DistributedOptimizerOptions& = {}, Sharding = {})
      : ShardedOptimizer(detail::must_be_moved(optimizer)) {}

  ShardedOptimizer(ShardedOptimizer&&) = default;

  /// Reduces gradients that `backward` has left on this rank; see DistributedOptimizer's
  /// `synchronize`. The shards in `param_groups()` then have gradients.
  void synchronize() override { reducer_.synchronize(*this); }

  /// Returns a guard. While it lives, backward passes accumulate gradients on this rank only.
  [[nodiscard]] NoSync no_sync() const { return reducer_.no_sync(); }

  /// The ranks that take part.
  [[nodiscard]] const ProcessSet& process_set() const { return reducer_.process_set(); }

  /// Calls `synchronize`, updates this rank's shards, and gathers the parameters. Collective in the
  /// set, like `skip_step`. If one rank steps and another skips, all get Mismatch; then parameters
  /// and state are invalid until both are loaded from a checkpoint. With a closure, the gradients
  /// and the loss are reduced.
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    ::torch::Tensor loss;
    if (closure == nullptr) {
      reducer_.begin_step(*this);
      loss = Base::step(nullptr);
    } else {
      reducer_.begin_evaluations(*this);
      loss = Base::step([this, &closure] {
        const ::torch::Tensor own = closure();
        reducer_.begin_step(*this);
        return reducer_.reduce_loss(own);
      });
    }
    reducer_.end_step();
    return loss;
  }

  /// Reduces like `synchronize`, and drops the step; see DistributedOptimizer's `skip_step`.
  void skip_step() override { reducer_.skip(*this); }

  /// Zeroes the gradients of shards and the full gradients, with the arguments of
  /// `Base::zero_grad`. A module's `zero_grad` does the same, except that it does not restart the
  /// count of `backward_passes_per_step`. This function is not virtual: `zero_grad` called through
  /// a reference to `Base` leaves full gradients of passes without reduction.
  template <typename... Arguments>
    requires requires(Base& base, Arguments... arguments) { base.zero_grad(arguments...); }
  void zero_grad(Arguments... arguments) {
    reducer_.prepare_zero_grad(*this);
    Base::zero_grad(arguments...);
    reducer_.finish_zero_grad();
  }

  /// Whether `condition` is true on all ranks of the set. Collective in the set.
  [[nodiscard]] bool all_ranks(bool condition) const { return reducer_.all_ranks(condition); }
  [[nodiscard]] ::torch::Tensor on_any_rank(::torch::Tensor own) const override {
    return reducer_.on_any_rank(std::move(own));
  }
  ::torch::Tensor clip_on_device(double max_norm, const ClipOptions& options) override {
    return reducer_.clip(*this, max_norm, options);
  }

  /// The state of all ranks, in the form that `kolo::state` gives for a DistributedOptimizer of the
  /// same parameters. Either kind of optimizer can load it, on any number of ranks. It is empty
  /// except on `root`, a world rank, which needs memory for two copies of it. Tensors are gathered
  /// one at a time, so other ranks need memory for one tensor. Collective in the set.
  [[nodiscard]] StateDict full_state(int root) const { return reducer_.full_state(*this, root); }
  /// As above, but returns the state on every rank of the set.
  [[nodiscard]] StateDict full_state() const {
    return reducer_.full_state(*this, detail::ShardedReducer::all_ranks_get_it);
  }

  /// Loads this rank's shards from a full state: the result of `full_state`, or of `kolo::state`
  /// for a DistributedOptimizer. Not collective. Throws InvalidArgument for any other state; then
  /// nothing is changed.
  void load_full_state(const StateView& state) { reducer_.load_full_state(state, *this); }

  /// Call it after a new session has begun; see DistributedOptimizer's `rejoin`. Divides the
  /// parameters among the ranks of the new session, and drops the optimizer's state: call
  /// `load_full_state` or `load_sharded_state` afterwards.
  void rejoin() { reducer_.rejoin(*this); }

  /// Loads this rank's shards of a state that any number of ranks have saved as per-rank parts,
  /// with `kolo::state_view(optimizer)`: pass `found->per_rank_parts("optimizer")`. Reads only what
  /// this rank needs. If shards are missing, damaged or of other parameters on one rank, all ranks
  /// of the set throw an Error that names the rank. Its state is unchanged, but others may have
  /// loaded theirs: load again before the next step. Optimizers of different process sets need
  /// parts of different names. Collective in the set; local on a rank outside it.
  void load_sharded_state(const std::vector<StateView>& shards) {
    reducer_.load_sharded_state(shards, *this);
  }

  /// `torch::save` and `torch::load` call these, which throw InvalidArgument: this rank has only
  /// its shards. Use `full_state`, or `kolo::state_view` in per-rank parts.
  void save(::torch::serialize::OutputArchive& /*archive*/) const override {
    detail::ShardedReducer::refuse_archive("torch::save");
  }
  void load(::torch::serialize::InputArchive& /*archive*/) override {
    detail::ShardedReducer::refuse_archive("torch::load");
  }
  void save_shards(::torch::serialize::OutputArchive& archive) const override {
    Base::save(archive);
  }
  void load_shards(::torch::serialize::InputArchive& archive) override { Base::load(archive); }

  /// For `kolo::state` and `kolo::load_state`, which take the shards of this rank only.
  [[nodiscard]] std::string place() const override { return reducer_.place(); }
  [[nodiscard]] std::string describe_parameters() const override {
    return reducer_.describe_parameters(*this);
  }
  void adopt_parameters() override { reducer_.adopt(*this); }

 private:
  detail::ShardedReducer reducer_;
};

template <detail::AnyOptimizer Base>
ShardedOptimizer(Base&&, const DistributedOptimizerOptions& = {},
                 Sharding = Sharding::state_and_gradients)
    -> ShardedOptimizer<std::remove_cvref_t<Base>>;
template <detail::AnyOptimizer Base, detail::NamesParameters Names>
ShardedOptimizer(Base&&, const Names&, const DistributedOptimizerOptions& = {},
                 Sharding = Sharding::state_and_gradients)
    -> ShardedOptimizer<std::remove_cvref_t<Base>>;
template <detail::AnyOptimizer Base>
ShardedOptimizer(Base&&, std::initializer_list<NamedParameters::value_type>,
                 const DistributedOptimizerOptions& = {}, Sharding = Sharding::state_and_gradients)
    -> ShardedOptimizer<std::remove_cvref_t<Base>>;

}  // namespace kolo
