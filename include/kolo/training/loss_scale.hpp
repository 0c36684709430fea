// SPDX-License-Identifier: Apache-2.0
// LossScale: the factor of the loss in mixed precision.
#pragma once

#include <cstdint>
#include <string>

#include "kolo/export.hpp"

namespace kolo {

/// Options of LossScale.
struct LossScaleOptions {
  double initial = 65536.0;             ///< From 2^-100 to 2^100, like all later scales.
  double growth_factor = 2.0;           ///< Above 1.
  double backoff_factor = 0.5;          ///< Above 0 and below 1.
  std::int64_t growth_interval = 2000;  ///< Steps without overflow until the scale grows; positive.
};

/// The factor by which a loss is multiplied so that two-byte gradients do not underflow
/// (Micikevicius et al., 2018, https://arxiv.org/abs/1710.03740). The scale shrinks after a step
/// whose gradients overflowed, and grows after many steps without one. No communication: reduced
/// gradients have the same bits on all ranks, so all ranks find the same overflows and keep the
/// same scale. With a custom trainer whose step divides the gradients by the scale:
///
///     model.backward(loss_scale.value());  // gradients of loss * scale
///     kolo::ReducedGradients reduced = optimizer.reduce();
///     const double norm = optimizer.clip_grad_norm(reduced, 1.0 * loss_scale.value());
///     if (std::isfinite(norm)) optimizer.step(std::move(reduced));  // else the step is skipped
///     loss_scale.update(!std::isfinite(norm));
///
/// `kolo::GradScaler` in `kolo/torch.hpp` does this for LibTorch's optimizers. Not thread-safe.
class LossScale {
 public:
  /// Throws InvalidArgument for an invalid option and names it.
  KOLO_EXPORT explicit LossScale(const LossScaleOptions& options = {});

  /// The factor by which to multiply the next loss.
  [[nodiscard]] double value() const { return value_; }

  /// Adapts the scale after a step. `overflow`: whether a gradient had an infinity or a NaN.
  KOLO_EXPORT void update(bool overflow);

  /// Save and restore the scale and the number of steps since it changed, for a checkpoint, without
  /// the options. After `join`, load the state of the rank that joined last. `load_state` throws
  /// InvalidArgument unless the string came from `state`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

 private:
  LossScaleOptions options_;
  double value_;
  std::int64_t good_ = 0;  // steps without overflow since the scale changed
};

}  // namespace kolo
