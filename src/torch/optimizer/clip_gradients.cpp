// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/gradients.hpp"

#include <cmath>
#include <string>

#include "kolo/error.hpp"
#include "torch/optimizer/optimizer_gradients.hpp"
#include "training/optimizer/gradient_norm.hpp"

namespace kolo::internal {
namespace {

// The norm of each gradient, in f64 for any dtype. The norms are copied to the CPU at once, so that
// the thread waits for the device once and not per gradient.
::torch::Tensor norms_of(const std::vector<::torch::Tensor>& gradients, double type) {
  std::vector<::torch::Tensor> norms;
  for (const ::torch::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    norms.push_back(at::norm(gradient.flatten(), type, at::kDouble).to(gradients[0].device()));
  }
  return norms.empty() ? at::zeros({1}, at::kDouble) : at::stack(norms).cpu();
}

}  // namespace

double norm_of(const std::vector<::torch::Tensor>& gradients, double type) {
  const ::torch::Tensor norms = norms_of(gradients, type);
  return std::isinf(type) ? norms.max().item<double>()  // NaN if any norm is NaN
                          : at::norm(norms, type).item<double>();
}

void require_clip(double max_norm, double norm_type) {
  require_positive("max_norm", max_norm);
  require_positive("norm_type", norm_type);
}

void scale_to(double max_norm, double norm, bool refuse_nonfinite,
              const std::vector<::torch::Tensor>& gradients) {
  if (refuse_nonfinite && !std::isfinite(norm)) {
    throw Error("clip_grad_norm: the norm of the gradients is " + std::to_string(norm));
  }
  if (const auto factor = clip_factor(max_norm, norm))
    for (::torch::Tensor gradient : gradients) gradient.mul_(*factor);
}

}  // namespace kolo::internal

namespace kolo::detail {

using namespace internal;

double clip_grad_norm(const ParameterGroups& groups, double max_norm, const ClipOptions& options,
                      const ProcessSet& set) {
  require_clip(max_norm, options.norm_type);
  const at::NoGradGuard no_grad;
  const std::vector<::torch::Tensor> gradients = gradient_elements(groups);
  const double norm =
      agree_on_norm(norm_of(gradients, options.norm_type), "kolo.clip_grad_norm", set);
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

}  // namespace kolo::detail
