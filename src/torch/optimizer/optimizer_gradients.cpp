// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/optimizer_gradients.hpp"

#include <ATen/ops/stack.h>

#include <cmath>
#include <string>
#include <unordered_set>

#include "kolo/error.hpp"
#include "kolo/torch/gradients.hpp"
#include "torch/optimizer/shard_groups.hpp"
#include "torch/tensor_view.hpp"
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

std::vector<::torch::Tensor> gradients_of(const ParameterGroups& groups) {
  std::vector<::torch::Tensor> gradients;
  std::unordered_set<const c10::TensorImpl*> seen;  // tied weights are listed more than once
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& parameter) {
    ::torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) return;
    // An expanded gradient that the program has set, and no rank has reduced.
    if (elements_overlap(gradient)) gradient = gradient.clone(at::MemoryFormat::Contiguous);
    // The rows of a sparse gradient of LibTorch's may repeat. A reduced one is coalesced.
    if (gradient.is_sparse()) gradient = gradient.coalesce();
    gradients.push_back(gradient);
  });
  return gradients;
}

::torch::Tensor elements_of(const ::torch::Tensor& gradient) {
  // `gradients_of` has coalesced it, so its values hold each element once.
  return gradient.is_sparse() ? gradient._values() : gradient;
}

std::vector<::torch::Tensor> gradient_elements(const ParameterGroups& groups) {
  std::vector<::torch::Tensor> elements;
  for (const ::torch::Tensor& gradient : gradients_of(groups))
    elements.push_back(elements_of(gradient));
  return elements;
}

bool scale_and_check(const std::vector<::torch::Tensor>& gradients, double factor) {
  std::vector<::torch::Tensor> zeros;  // one for each gradient; NaN if it is not finite
  for (::torch::Tensor gradient : gradients) {
    if (gradient.numel() == 0) continue;
    // A finite element times zero is zero, and any other is NaN. So the sum is NaN if any element
    // is not finite, and unlike a norm it does not overflow.
    zeros.push_back(gradient.mul(0.0).sum().to(gradients[0].device(), at::kFloat));
    if (factor != 1.0) gradient.mul_(factor);
  }
  return zeros.empty() || std::isfinite(at::stack(zeros).sum().item<double>());
}

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

namespace kolo {

using namespace internal;

double clip_grad_norm(::torch::optim::Optimizer& optimizer, double max_norm,
                      const ClipOptions& options) {
  if (auto* const reducing = dynamic_cast<detail::ReducingOptimizer*>(&optimizer))
    return reducing->clip_grad_norm(max_norm, options);
  require_clip(max_norm, options.norm_type);
  const at::NoGradGuard no_grad;
  const std::vector<::torch::Tensor> gradients = gradient_elements(optimizer.param_groups());
  double norm = norm_of(gradients, options.norm_type);
  if (const auto group = shard_group_of(optimizer.param_groups()))
    norm = join_norms(norm, options.norm_type, group->operation + "norm", group->set);
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

}  // namespace kolo
