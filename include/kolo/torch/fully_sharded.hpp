// SPDX-License-Identifier: Apache-2.0
// Fully sharded training with LibTorch: each rank keeps one shard of every parameter, gradient and
// optimizer state.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/types.hpp"

namespace kolo {
namespace internal {
class ShardedUnit;
class UnitUse;
}  // namespace internal

namespace detail {

/// The part of a `Sharded` module that FullySharded finds and uses. Without a FullySharded, and
/// outside of `ConstructSharded`, it does nothing.
class KOLO_EXPORT ShardedModule {
 public:
  virtual ~ShardedModule();

  /// A call of the module's forward: gathers its parameters, and frees them at the end.
  class KOLO_EXPORT Call {
   public:
    explicit Call(const ShardedModule& module);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// Makes backward gather the parameters before it comes to the operations of this call.
    void add_result(const ::torch::Tensor& tensor);
    /// To be called unless forward throws. Throws the errors of the gathers.
    void end();

   private:
    std::unique_ptr<internal::UnitUse> use_;  // null if the module is no unit
  };

 protected:
  ShardedModule() noexcept;
  ShardedModule(const ShardedModule&) noexcept;
  ShardedModule& operator=(const ShardedModule&) noexcept;
  /// Called once the module is constructed.
  void constructed(::torch::nn::Module& module);

 private:
  friend class internal::ShardedUnit;
  std::shared_ptr<internal::ShardedUnit> unit_;
};

}  // namespace detail

/// Calls `use(tensor)` with each tensor in the result of a unit's forward. Overload it, in the
/// namespace of your type, for other results than tensors and the standard containers of them.
template <typename F>
void for_each_tensor(const ::torch::Tensor& tensor, const F& use) {
  if (tensor.defined()) use(tensor);
}
template <typename T, typename F>
void for_each_tensor(const std::vector<T>& values, const F& use) {
  for (const T& value : values) for_each_tensor(value, use);
}
template <typename T, typename F>
void for_each_tensor(const std::optional<T>& value, const F& use) {
  if (value) for_each_tensor(*value, use);
}
template <typename A, typename B, typename F>
void for_each_tensor(const std::pair<A, B>& values, const F& use) {
  for_each_tensor(values.first, use);
  for_each_tensor(values.second, use);
}
template <typename... T, typename F>
void for_each_tensor(const std::tuple<T...>& values, const F& use) {
  std::apply([&](const T&... value) { (for_each_tensor(value, use), ...); }, values);
}
template <typename Key, typename T, typename F>
void for_each_tensor(const std::map<Key, T>& values, const F& use) {
  for (const auto& [key, value] : values) for_each_tensor(value, use);
}

namespace detail {

template <typename Impl, typename Forward = decltype(&Impl::forward)>
class ShardedImpl;

/// An `Impl` whose forward is that of a unit.
template <typename Impl, typename Owner, typename Result, typename... Arguments>
class ShardedImpl<Impl, Result (Owner::*)(Arguments...)> : public Impl, public ShardedModule {
 public:
  template <typename... Args>
    requires std::constructible_from<Impl, Args...>
  explicit ShardedImpl(Args&&... args) : Impl(std::forward<Args>(args)...) { constructed(*this); }

  Result forward(Arguments... arguments) {
    Call call(*this);
    Result result = Impl::forward(std::forward<Arguments>(arguments)...);
    for_each_tensor(result, [&](const ::torch::Tensor& tensor) { call.add_result(tensor); });
    call.end();
    return result;
  }
};

}  // namespace detail

/// A module that is a unit of a FullySharded model: write `Sharded<Block>` instead of `Block`,
/// where `Block` is a holder made by `TORCH_MODULE`. It takes the arguments of `Block`, derives
/// from `BlockImpl`, and has the same members and names of parameters. `forward` must be one
/// function, neither a template, overloaded nor const. Default arguments of it are lost.
template <typename Holder>
class Sharded
    : public ::torch::nn::ModuleHolder<detail::ShardedImpl<typename Holder::ContainedType>> {
 public:
  using ::torch::nn::ModuleHolder<
      detail::ShardedImpl<typename Holder::ContainedType>>::ModuleHolder;
};

/// A guard. While it lives, each `Sharded` module that this thread constructs keeps only this
/// rank's shards of its parameters, as soon as its constructor ends:
///
///     kolo::Sharded<GPT> model = [] {
///       const kolo::ConstructSharded guard;
///       return kolo::Sharded<GPT>(width);
///     }();
///
/// So no rank ever holds the whole model: at most its shards and one unit. Seed the generator
/// equally on all ranks, so that the shards are those of one model. Reading a parameter afterwards
/// gives NaN, until a FullySharded takes the model. Needs a session. Not nestable.
class [[nodiscard]] ConstructSharded {
 public:
  /// `set` must be the process set of the FullySharded that takes the model.
  KOLO_EXPORT explicit ConstructSharded(const ProcessSet& set = {});
  KOLO_EXPORT ~ConstructSharded();
  ConstructSharded(const ConstructSharded&) = delete;
  ConstructSharded& operator=(const ConstructSharded&) = delete;
};

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
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Trains a model of which each of n ranks holds 1/n: of parameters, gradients and optimizer state
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
/// they are final when it returns. Passes accumulate. The optimizer must be elementwise (see
/// `is_elementwise_optimizer`); the parameters are then those of a DistributedOptimizer, bit for
/// bit. `kolo::clip_grad_norm` and GradScaler take such an optimizer as any other.
///
/// All ranks of the set must call the model's forward equally often, and backward too. They may use
/// different units, except for units used twice: a rank passes over what others use. A rank without
/// data calls `take_part`. If forward or backward throws on one rank, the others' backward throws
/// BackwardFailed once that rank calls forward again or `take_part`; call `zero_grad` then. `join`
/// makes the calls of others throw Mismatch. A step between forward and backward makes backward
/// throw.
///
/// Frozen parameters must be frozen before construction; units that have some are freed at the end
/// of backward. The module must not be converted or moved later.
///
/// Construction is collective. It throws Mismatch if units or options differ between ranks, and
/// InvalidArgument for parameters in no unit, not dense, or not of a floating-point type, and for a
/// rank outside the set. The model must outlive this object, which must outlive passes. Not
/// thread-safe. Neither movable nor copyable.
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

  /// Takes part in a forward and backward of the other ranks, with zeros. If forward has thrown on
  /// this rank, or has run without backward, completes that one. Throws the errors of backward.
  KOLO_EXPORT void take_part();

  /// A guard. While it lives, all parameters are whole, for evaluation by each rank for itself, or
  /// to look at them. Changes to them are lost.
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
  /// are not part of it. For an optimizer of them use `kolo::state_view(optimizer)`.
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
