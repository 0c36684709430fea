// SPDX-License-Identifier: Apache-2.0
// Fully sharded training for custom trainers: each rank keeps one shard of every parameter and
// gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/tensor.hpp"
#include "kolo/types.hpp"

namespace kolo {

/// Options of a ShardedModel, which must be equal on all ranks of the set.
struct ShardedModelOptions {
  ReduceOp op = ReduceOp::average;              ///< average or sum.
  Compression compression = Compression::none;  ///< Of gradients.
  /// If false, units stay gathered from forward to backward: less traffic, more memory.
  bool reshard_after_forward = true;
  int units_ahead = 1;       ///< Units gathered before they are needed, 0 or more.
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Divides a model among n ranks: each keeps 1/n of the parameters, gradients and optimizer state
/// (Rajbhandari et al., 2020, "ZeRO", stage 3, https://arxiv.org/abs/1910.02054).
/// The model is a list of units, such as its layers. A unit is gathered where the program uses it:
///
///     kolo::ShardedModel model({{"root", {{"embedding", 16384}}},
///                               {"layer.0", {{"weight", 4096}, {"bias", 64}}},
///                               {"layer.1", {{"weight", 4096}, {"bias", 64}}}}, fill);
///     Adam adam(model.parameters(), model.gradients());  // this rank's shards
///     ...
///     auto forward = model.begin_forward();              // embedding: forward.parameter<float>(0)
///     for (std::size_t unit = 1; unit <= 2; ++unit) {
///       const auto layer = forward.use(unit);
///       ...                                              // weight: layer.parameter<float>(0)
///     }
///     forward.end();
///     auto backward = model.begin_backward();
///     for (std::size_t unit = 2; unit >= 1; --unit) {
///       const auto layer = backward.use(unit);
///       ...                                              // add to layer.gradient<float>(0)
///     }
///     ...                                                // add to backward.gradient<float>(0)
///     backward.end();
///     model.clip_grad_norm(1.0);                         // by the norm of all shards
///     adam.step();
///     model.zero_gradients();
///
/// The first unit is the root: parameters that are used outside of the other units, or in several
/// of them. It stays gathered from the beginning of forward to the end of backward, and may be
/// empty of parameters. Every other unit has memory only while it is used; at most `units_ahead`
/// units more are on the way. When a use in backward ends, the gradients of the unit are
/// reduce-scattered while the program goes on, and their memory is freed.
///
/// Shards are split as by `reducescatter_rows`. The optimizer must be elementwise; it updates
/// `parameters()` in place. The results are those of a ShardedOptimizer, bit for bit, as long as
/// the gradients of each parameter are reduced once a step.
///
/// List the units in the order in which forward comes to them; backward comes to them in reverse.
/// All ranks of the set must begin forward equally often, and backward too. They may skip units,
/// except for units used several times in one forward or backward: a rank passes over what others
/// use. A rank without data calls `take_part`. `join` makes the calls of others throw Mismatch.
///
/// If an exception leaves forward or backward on one rank, that is, if the guard is destroyed
/// without `end()`, `Backward::end` of the others throws BackwardFailed; where forward has thrown,
/// once that rank begins forward again or calls `take_part`. The gradients are then invalid: call
/// `zero_gradients`.
///
/// Construction is collective. It throws Mismatch if units, options or initial values differ
/// between ranks, and InvalidArgument for invalid units or options and for a rank outside the set.
/// The model must outlive its guards. Not thread-safe. Neither movable nor copyable.
/// `kolo::FullySharded` is the version for LibTorch's modules.
class ShardedModel {
  struct State;

 public:
  /// A parameter: f32, f64, f16 or bf16.
  struct Parameter {
    std::string name;
    std::int64_t elements;
    DType dtype = DType::f32;
  };
  /// Parameters that are gathered together. Two units must not have the same
  /// name, nor two parameters of one unit.
  struct Unit {
    std::string name;
    std::vector<Parameter> parameters{};
  };
  /// Writes the initial values of a unit, which are zeros before. Called once for each unit, in
  /// order, so that no rank ever holds the whole model. The values must be equal on all ranks.
  using Fill = std::function<void(std::size_t unit, std::span<const TensorView> parameters)>;

  KOLO_EXPORT explicit ShardedModel(const std::vector<Unit>& units, const Fill& fill = {},
                                    const ShardedModelOptions& options = {});
  KOLO_EXPORT ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// The whole parameters of a unit, in their order, and in backward their gradients. Valid while
  /// the object lives and has not ended.
  class View {
   public:
    [[nodiscard]] std::span<const ConstTensorView> parameters() const { return parameters_; }
    /// The program adds to them. They are zeros at the beginning of a use, unless passes without
    /// reduction have left gradients. Empty in forward.
    [[nodiscard]] std::span<const TensorView> gradients() const { return gradients_; }

    /// The elements of a parameter or gradient. Throws InvalidArgument, naming the unit, for
    /// another dtype or an index out of range. f16 and bf16 have no C++ type: see `parameters()`.
    template <Element T>
    [[nodiscard]] std::span<const T> parameter(std::size_t i) const {
      const ConstTensorView& view = parameter_of(i, dtype_of<T>);
      return {static_cast<const T*>(view.data()), static_cast<std::size_t>(view.elements())};
    }
    template <Element T>
    [[nodiscard]] std::span<T> gradient(std::size_t i) const {
      const TensorView& view = gradient_of(i, dtype_of<T>);
      return {static_cast<T*>(view.data()), static_cast<std::size_t>(view.elements())};
    }

    View(const View&) = delete;
    View& operator=(const View&) = delete;

   protected:
    View(State& state, std::size_t unit) : state_(&state), unit_(unit) {}
    ~View() = default;

    State* state_;
    std::size_t unit_;
    std::vector<ConstTensorView> parameters_{};
    std::vector<TensorView> gradients_{};

   private:
    [[nodiscard]] KOLO_EXPORT const ConstTensorView& parameter_of(std::size_t i, DType type) const;
    [[nodiscard]] KOLO_EXPORT const TensorView& gradient_of(std::size_t i, DType type) const;
  };

  /// A use of a unit, which ends with this object. In backward, the reduction of the gradients then
  /// starts, unless an exception is on its way; `Backward::end` throws its errors.
  class [[nodiscard]] Use : public View {
   public:
    KOLO_EXPORT ~Use();

   private:
    friend class ShardedModel;
    Use(State& state, std::size_t unit, bool backward);
    bool backward_;
    int exceptions_;  // on their way when it began
  };

  /// A forward, and a view of the root unit.
  class [[nodiscard]] Forward : public View {
   public:
    /// Without `end`, the forward has failed on this rank.
    KOLO_EXPORT ~Forward();
    /// Gathers the unit; waits for it. Throws the errors of `allgather`.
    KOLO_EXPORT Use use(std::size_t unit) const;
    /// Ends the forward. Passes over the units that other ranks may have used.
    KOLO_EXPORT void end();

   private:
    friend class ShardedModel;
    Forward(State& state, bool records);
    bool has_ended_ = false;
  };

  /// A backward, and a view of the root unit and its gradients.
  class [[nodiscard]] Backward : public View {
   public:
    /// Without `end`, the backward has failed on this rank.
    KOLO_EXPORT ~Backward();
    /// Gathers the unit, and provides memory for its gradients. One use of a unit at a time. Throws
    /// Error if the shards were changed since the unit's forward.
    KOLO_EXPORT Use use(std::size_t unit) const;
    /// Ends the backward: the gradients of this rank's shards are final. Throws BackwardFailed if
    /// it, or forward, has failed on another rank, and the errors of `reducescatter`.
    KOLO_EXPORT void end();

   private:
    friend class ShardedModel;
    explicit Backward(State& state);
    bool has_ended_ = false;
  };

  /// Begins a forward that backward follows; several may precede one backward. Waits for the root.
  KOLO_EXPORT Forward begin_forward();
  /// Begins a forward without backward. A rank without data may end it at once.
  KOLO_EXPORT Forward begin_evaluation();

  /// Options of a backward, equal on all ranks.
  struct Pass {
    /// If false, gradients accumulate whole on this rank, which needs memory for those of the whole
    /// model. The next backward that reduces includes them.
    bool reduce = true;
  };
  KOLO_EXPORT Backward begin_backward(const Pass& pass);
  KOLO_EXPORT Backward begin_backward();

  /// Takes part in a forward and backward of the other ranks, with zeros. If forward has thrown on
  /// this rank, or has run without backward, completes that one. Throws the errors of
  /// `Backward::end`.
  KOLO_EXPORT void take_part(const Pass& pass);
  KOLO_EXPORT void take_part();

  /// This rank's shards of the parameters and of the gradients, in the order of the units, each
  /// with one dimension and the name "UNIT.PARAMETER". The memory stays the same. Backwards that
  /// reduce add to the gradients. Change parameters only outside of forward and backward.
  [[nodiscard]] KOLO_EXPORT std::vector<NamedTensor> parameters() const;
  [[nodiscard]] KOLO_EXPORT std::vector<NamedTensor> gradients() const;
  /// Where these shards lie in the whole parameters, in the same order. The ranks' shards, one
  /// after another, are the whole parameter: `allgather` them one at a time for a checkpoint.
  [[nodiscard]] KOLO_EXPORT std::span<const Shard> shards() const;

  /// Sets the gradients to zero, also those that no backward has reduced yet.
  KOLO_EXPORT void zero_gradients();
  /// Scales this rank's gradients if the 2-norm of all ranks' shards exceeds `max_norm`. Returns
  /// the norm before scaling, the same on all ranks. Collective.
  KOLO_EXPORT double clip_grad_norm(double max_norm);

  /// A guard. While it lives, all parameters are whole, for evaluation by each rank for itself.
  class [[nodiscard]] Whole {
   public:
    KOLO_EXPORT ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;
    [[nodiscard]] KOLO_EXPORT std::vector<ConstTensorView> parameters(std::size_t unit) const;

   private:
    friend class ShardedModel;
    explicit Whole(State& state);
    State* state_;
    std::int64_t session_;
  };
  /// Gathers all parameters. Collective; needs memory for the whole model. Do not begin forward or
  /// change shards before the guard ends.
  KOLO_EXPORT Whole gather();

  /// Counts since construction, on this rank.
  struct Counters {
    std::int64_t gathers;               ///< Units gathered.
    std::int64_t late_gathers;          ///< Those of them not done when they were needed.
    std::int64_t reductions;            ///< Units whose gradients were reduced.
    std::int64_t most_parameter_bytes;  ///< The most memory of whole parameters at one time.
    std::int64_t most_gradient_bytes;   ///< The most memory of whole gradients at one time.
  };
  [[nodiscard]] KOLO_EXPORT Counters counters() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kolo
