// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/amp.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/optimizer.hpp"
#include "torch/autocast_state.hpp"
#include "torch/optimizer/optimizer_gradients.hpp"
#include "torch/optimizer/shard_groups.hpp"

namespace kolo {

using namespace internal;
using ::torch::optim::Optimizer;
namespace {

c10::DeviceType autocast_type(const ::torch::Device& device) {
  if (device.is_cpu() || device.is_cuda()) return device.type();
  throw InvalidArgument("Autocast: the device must be a CPU or a GPU, but is " + device.str());
}

::torch::ScalarType autocast_dtype(::torch::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return dtype;
  throw InvalidArgument(std::string("Autocast: the dtype must be f16 or bf16, but is ") +
                        c10::toString(dtype));
}

void require_divisible(const ::torch::Tensor& gradient) {
  if (gradient.scalar_type() != at::kHalf) return;
  throw InvalidArgument(
      "GradScaler: a gradient is f16, and would underflow if it was divided by the scale. Keep "
      "parameters in f32 and compute in f16 with kolo::Autocast");
}

}  // namespace

Autocast::Autocast(::torch::Device device, ::torch::ScalarType dtype, bool enabled)
    : type_(autocast_type(device)) {
  const AutocastState old = autocast_state(type_);
  was_enabled_ = old.enabled;
  old_dtype_ = old.dtype;
  set_autocast_state(type_, {enabled, autocast_dtype(dtype)});
  at::autocast::increment_nesting();
}

// LibTorch keeps converted parameters in a cache for the next operation that uses them. A step
// changes parameters, so the outermost guard clears the cache.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set_autocast_state(type_, {was_enabled_, old_dtype_});
}

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

// Unscales the gradients, after their reduction if the dynamic type is that of an optimizer which
// reduces. A rank of a ShardedOptimizer sees only its shards of the gradients, so the ranks must
// agree on whether all are finite.
void GradScaler::unscale_gradients(Optimizer& optimizer) {
  auto* const reducing = dynamic_cast<detail::ReducingOptimizer*>(&optimizer);
  if (reducing != nullptr) reducing->synchronize();
  const at::NoGradGuard no_grad;
  const ::torch::Device device = device_of(optimizer.param_groups());
  ::torch::Tensor nonfinite = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  if (enabled_) {
    const std::vector<::torch::Tensor> gradients = gradients_of(optimizer.param_groups());
    std::vector<::torch::Tensor> scaled;
    std::vector<::torch::Tensor> divided;  // by another optimizer that shares the parameter
    for (const ::torch::Tensor& gradient : gradients) {
      require_divisible(gradient);
      const auto found = divided_.find(gradient.unsafeGetTensorImpl());
      const bool is_divided =
          found != divided_.end() && found->second.version == gradient._version();
      (is_divided ? divided : scaled).push_back(elements_of(gradient));
    }
    nonfinite = scale_and_check(scaled, 1.0 / scale_.value(), device);
    if (!divided.empty()) nonfinite.add_(scale_and_check(divided, 1.0, device));
    for (const ::torch::Tensor& gradient : gradients)
      divided_[gradient.unsafeGetTensorImpl()] = {gradient, gradient._version()};
  }
  if (reducing != nullptr) nonfinite = reducing->on_any_rank(std::move(nonfinite));
  if (const auto group = shard_group_of(optimizer.param_groups()))
    nonfinite = group->on_any_rank(std::move(nonfinite));
  unscaled_.push_back({&optimizer, std::move(nonfinite)});
}

bool GradScaler::is_finite(Unscaled& unscaled) {
  if (!unscaled.finite) unscaled.finite = unscaled.nonfinite.item<float>() == 0.0F;
  return *unscaled.finite;
}

bool GradScaler::begin_step(Optimizer& optimizer) {
  const auto seen = std::find_if(unscaled_.begin(), unscaled_.end(),
                                 [&](const Unscaled& one) { return one.optimizer == &optimizer; });
  if (seen->stepped)
    throw InvalidArgument("GradScaler: a second step() of an optimizer needs update() before it");
  seen->stepped = true;
  if (is_finite(*seen)) return true;
  if (auto* const reducing = dynamic_cast<detail::ReducingOptimizer*>(&optimizer))
    reducing->skip_step();
  return false;
}

void GradScaler::update() {
  if (unscaled_.empty())
    throw InvalidArgument("GradScaler: update() without a step since the last update()");
  const bool overflow = std::any_of(unscaled_.begin(), unscaled_.end(),
                                    [](Unscaled& seen) { return !is_finite(seen); });
  if (enabled_) scale_.update(overflow);
  unscaled_.clear();
  divided_.clear();
}

}  // namespace kolo
