// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/grad_scaler.hpp"

#include <algorithm>

#include "kolo/error.hpp"
#include "torch/optimizer_gradients.hpp"

namespace kolo {

using namespace internal;
using ::torch::optim::Optimizer;

::torch::Tensor GradScaler::scale(const ::torch::Tensor& loss) const {
  if (!enabled_) return loss;
  const bool is_half = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (is_half ? loss.to(at::kFloat) : loss) * scale_.value();
}

bool GradScaler::is_unscaled(const Optimizer& optimizer) const {
  return std::any_of(unscaled_.begin(), unscaled_.end(),
                     [&](const Unscaled& seen) { return seen.optimizer == &optimizer; });
}

void GradScaler::require_scaled(const Optimizer& optimizer, const char* call) const {
  if (!is_unscaled(optimizer)) return;
  throw InvalidArgument(std::string("GradScaler: ") + call +
                        "() for an optimizer whose gradients are unscaled already. Call update() "
                        "after the step");
}

void GradScaler::unscale_gradients(const Optimizer& optimizer) {
  bool finite = true;
  if (enabled_) {
    const at::NoGradGuard no_grad;
    const std::vector<::torch::Tensor> gradients = gradient_elements(optimizer.param_groups());
    for (const ::torch::Tensor& gradient : gradients) {
      if (gradient.scalar_type() != at::kHalf) continue;
      throw InvalidArgument(
          "GradScaler: a gradient is f16, and would underflow if it was divided by the scale. Keep "
          "parameters in f32 and compute in f16 with kolo::Autocast");
    }
    finite = scale_and_check(gradients, 1.0 / scale_.value());
  }
  unscaled_.push_back({&optimizer, finite, /*stepped=*/false});
}

bool GradScaler::begin_step(const Optimizer& optimizer) {
  const auto seen = std::find_if(unscaled_.begin(), unscaled_.end(),
                                 [&](const Unscaled& one) { return one.optimizer == &optimizer; });
  if (seen->stepped)
    throw InvalidArgument("GradScaler: a second step() of an optimizer needs update() before it");
  seen->stepped = true;
  return seen->finite;
}

void GradScaler::update() {
  if (unscaled_.empty())
    throw InvalidArgument("GradScaler: update() without a step since the last update()");
  const bool overflow = std::any_of(unscaled_.begin(), unscaled_.end(),
                                    [](const Unscaled& seen) { return !seen.finite; });
  if (enabled_) scale_.update(overflow);
  unscaled_.clear();
}

}  // namespace kolo
