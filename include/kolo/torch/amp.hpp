// SPDX-License-Identifier: Apache-2.0
// Mixed precision: LibTorch operations in a two-byte type where that is safe, and losses scaled so
// that f16 gradients do not underflow.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/training/loss_scale.hpp"

namespace kolo {
namespace detail {
class ReducingOptimizer;
}  // namespace detail

/// A guard for mixed precision. While it lives, LibTorch's operations on its type of device convert
/// their inputs to `dtype` where that is safe (such as convolutions and matrix products), and to
/// f32 where it is not (such as sums and losses). Parameters and their gradients stay f32:
///
///     torch::Tensor loss;
///     {
///       const kolo::Autocast autocast(device, torch::kBFloat16);
///       loss = criterion(model->forward(images), labels);
///     }
///     loss.backward();  // outside: each operation's backward uses the type of its forward
///
/// The destructor restores the previous setting, even after an exception. The outermost guard also
/// drops the cached converted parameters, so destroy it before the optimizer's step. Guards may
/// nest; with `enabled` false, operations inside compute in the types of their inputs.
///
/// A guard affects only the thread that constructed it. Destroy guards on that thread, in the
/// reverse order of construction. f16 gradients need a `GradScaler`; bf16 gradients do not.
/// LibTorch 1.13 has no f16 operations on CPUs.
class [[nodiscard]] Autocast {
 public:
  /// Throws InvalidArgument for a device other than a CPU or a GPU, and for a dtype other than f16
  /// and bf16.
  KOLO_EXPORT explicit Autocast(::torch::Device device, ::torch::ScalarType dtype,
                                bool enabled = true);
  KOLO_EXPORT ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType type_;
  bool was_enabled_;
  ::torch::ScalarType old_dtype_;
};

/// An optimizer that steps without a closure: a DistributedOptimizer or one of LibTorch's.
template <typename T>
concept SteppingOptimizer = std::derived_from<T, ::torch::optim::Optimizer> &&
    requires(T& optimizer) {
  optimizer.step();
};

/// Multiplies losses by a LossScale, divides gradients by it before an optimizer's step, and skips
/// steps whose gradients have an infinity or a NaN:
///
///     kolo::GradScaler scaler;
///     ...
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);             // only to look at gradients or to clip them
///     kolo::clip_grad_norm(optimizer, 1.0);
///     scaler.step(optimizer);                // steps, or skips the step
///     scaler.update();                       // once, after the steps of all optimizers
///
/// All ranks skip the same steps and keep the same scale, without communication: reduced gradients
/// have the same bits on all ranks. The gradients of a ShardedOptimizer and of a
/// FullySharded's shards differ, so their ranks communicate to agree. Construct the scaler with the
/// same options on all ranks. Optimizers may be passed as references to their base class. With
/// DistributedGradients and a plain optimizer, the last pass before `unscale` or `step` must
/// reduce. Use a separate scaler for the optimizers of each process set: where ranks train
/// different parameters, as in disjoint sets, their scales differ.
///
/// On a GPU, the gradients are checked there. Only `step` waits, once, to learn whether to step: an
/// optimizer's step runs on the host. So do `update` if `unscale` was not followed by `step`, and
/// `unscale` of a class that wraps a ShardedOptimizer. Clip with `clip_grad_norm_on_device`, which
/// does not wait.
///
/// Backward passes may accumulate; `update` follows the last of them. With several optimizers,
/// `update` shrinks the scale if the gradients of any overflowed, but only those skip a step. If
/// optimizers share parameters, unscale all before clipping. After `join`, load the state of the
/// rank that joined last. Copyable; not thread-safe.
class GradScaler {
 public:
  /// If `enabled` is false, nothing is scaled and no step is skipped, so that a program needs only
  /// one loop. Throws InvalidArgument for an invalid option and names it.
  explicit GradScaler(const LossScaleOptions& options = {}, bool enabled = true)
      : scale_(options), enabled_(enabled) {}

  /// The loss times the scale; in f32 if the loss is f16 or bf16.
  [[nodiscard]] KOLO_EXPORT ::torch::Tensor scale(const ::torch::Tensor& loss) const;

  /// Divides the optimizer's gradients by the scale, before you inspect or clip them. Call it at
  /// most once per optimizer between two calls of `update`. Calls the `synchronize` of a
  /// DistributedOptimizer. Throws InvalidArgument for a second call, and for f16 gradients, which
  /// would underflow when divided: keep parameters in f32, as with `Autocast`.
  template <SteppingOptimizer Optimizer>
  void unscale(Optimizer& optimizer) {
    require_scaled(optimizer, "unscale");
    if constexpr (wraps<Optimizer> && requires { optimizer.synchronize(); })
      optimizer.synchronize();
    unscale_gradients(optimizer);
    if constexpr (wraps<Optimizer> && requires { optimizer.all_ranks(true); })
      unscaled_.back().finite = optimizer.all_ranks(is_finite(unscaled_.back()));
  }

  /// Unscales the gradients if `unscale` has not, and steps unless they have an infinity or a NaN.
  /// Returns whether it has stepped. Throws InvalidArgument if it was called already since
  /// `update`, and the errors of `unscale` and of the optimizer's `step`.
  template <SteppingOptimizer Optimizer>
  bool step(Optimizer& optimizer) {
    if (!is_unscaled(optimizer)) unscale(optimizer);
    if (!begin_step(optimizer)) {
      if constexpr (wraps<Optimizer> && requires { optimizer.skip_step(); }) optimizer.skip_step();
      return false;
    }
    optimizer.step();
    return true;
  }

  /// Adapts the scale to the steps since the last call. Throws InvalidArgument if there were none.
  KOLO_EXPORT void update();

  /// The factor of the loss; 1 if not enabled.
  [[nodiscard]] double loss_scale() const { return enabled_ ? scale_.value() : 1.0; }

  /// Save and restore the scale for a checkpoint, between `update` and the next pass. `load_state`
  /// throws InvalidArgument unless the string came from `state`.
  [[nodiscard]] std::string state() const { return scale_.state(); }
  void load_state(const std::string& state) {
    scale_.load_state(state);
    rejoin();
  }

  /// Call it when a new session has begun. Discards unfinished steps since the last `update`.
  void rejoin() {
    unscaled_.clear();
    divided_.clear();
  }

 private:
  /// False for Kolo's own optimizers. Any other class may wrap one of them, and then have a
  /// `synchronize` and a `skip_step` of its own.
  template <typename Optimizer>
  static constexpr bool wraps = !std::is_convertible_v<Optimizer*, detail::ReducingOptimizer*>;

  struct Unscaled {
    const ::torch::optim::Optimizer* optimizer;
    ::torch::Tensor nonfinite;     // above 0 if a gradient is not finite; where the gradients are
    std::optional<bool> finite{};  // once the host knows
    bool stepped = false;
  };
  struct Divided {
    ::torch::Tensor gradient;  // kept alive, so that its address stays unique
    std::int64_t version;      // changes when the gradient is accumulated or zeroed
  };

  /// Waits for the GPU at the first call.
  [[nodiscard]] KOLO_EXPORT static bool is_finite(Unscaled& unscaled);
  [[nodiscard]] KOLO_EXPORT bool is_unscaled(const ::torch::optim::Optimizer& optimizer) const;
  KOLO_EXPORT void require_scaled(const ::torch::optim::Optimizer& optimizer,
                                  const char* call) const;
  KOLO_EXPORT void unscale_gradients(::torch::optim::Optimizer& optimizer);
  /// Returns whether the gradients are finite on all ranks. Otherwise skips the step.
  [[nodiscard]] KOLO_EXPORT bool begin_step(::torch::optim::Optimizer& optimizer);

  LossScale scale_;
  bool enabled_;
  // The optimizers unscaled, and the gradients divided, since the last update.
  std::vector<Unscaled> unscaled_;
  std::unordered_map<const c10::TensorImpl*, Divided> divided_;
};

}  // namespace kolo
