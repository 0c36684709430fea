// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/optimizer_gradients.hpp"

#include <ATen/ops/stack.h>

#include <cmath>
#include <unordered_set>

namespace kolo::internal {

std::vector<::torch::Tensor> gradients_of(const ParameterGroups& groups) {
  std::vector<::torch::Tensor> gradients;
  std::unordered_set<const c10::TensorImpl*> seen;  // tied weights are listed more than once
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& parameter) {
    const ::torch::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) return;
    gradients.push_back(gradient);
  });
  return gradients;
}

::torch::Tensor elements_of(const ::torch::Tensor& gradient) {
  // A reduced sparse gradient is coalesced, so its values hold each element once.
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
    // Times zero, a finite element is zero and any other NaN, and the sum is NaN if an element is.
    // Unlike a norm, this does not overflow.
    zeros.push_back(gradient.mul(0.0).sum().to(gradients[0].device(), at::kFloat));
    if (factor != 1.0) gradient.mul_(factor);
  }
  return zeros.empty() || std::isfinite(at::stack(zeros).sum().item<double>());
}

}  // namespace kolo::internal
