// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/optimizer_gradients.hpp"

#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "kolo/torch/gradients.hpp"
#include "torch/optimizer/shard_groups.hpp"
#include "torch/tensor_view.hpp"
#include "training/optimizer/gradient_norm.hpp"

namespace kolo::internal {
namespace {

::torch::Tensor number_of(double value) { return at::scalar_tensor(value, at::kDouble); }

// Multiplies by a factor on a GPU as `mul_` does by one on the host: in f32, or f64 for f64.
void scale_there(::torch::Tensor gradient, const ::torch::Tensor& factor) {
  const auto type = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const ::torch::Tensor there = factor.to(gradient.device(), type);
  if (gradient.scalar_type() == type)
    gradient.mul_(there);
  else
    gradient.copy_(gradient.to(type).mul_(there));
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

::torch::Device device_of(const ParameterGroups& groups) {
  ::torch::Device device(at::kCPU);
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& parameter) {
    if (device.is_cpu() && parameter.is_cuda()) device = parameter.device();
  });
  return device;
}

::torch::Tensor scale_and_check(const std::vector<::torch::Tensor>& gradients, double factor,
                                const ::torch::Device& device) {
  std::vector<::torch::Tensor> zeros;  // one for each gradient; NaN if it is not finite
  for (::torch::Tensor gradient : gradients) {
    if (gradient.numel() == 0) continue;
    // A finite element times zero is zero, and any other is NaN. So the sum is NaN if any element
    // is not finite, and unlike a norm it does not overflow.
    zeros.push_back(gradient.mul(0.0).sum().to(device, at::kFloat));
    if (factor != 1.0) gradient.mul_(factor);
  }
  if (zeros.empty()) return at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  const ::torch::Tensor sum = at::stack(zeros).sum();
  return sum.ne(sum).to(at::kFloat);  // only NaN differs from itself
}

// The norm of each gradient is in f64 for any dtype.
::torch::Tensor norm_of(const std::vector<::torch::Tensor>& gradients, double type,
                        const ::torch::Device& device) {
  std::vector<::torch::Tensor> norms;
  for (const ::torch::Tensor& gradient : gradients)
    if (gradient.numel() > 0)
      norms.push_back(at::norm(gradient.flatten(), type, at::kDouble).to(device));
  if (norms.empty()) return at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  const ::torch::Tensor all = at::stack(norms);
  return std::isinf(type) ? all.max()  // NaN if any norm is NaN
                          : at::norm(all, type);
}

::torch::Tensor agree_on_norm(::torch::Tensor norm, const std::string& operation,
                              const ProcessSet& set) {
  if (norm.is_cpu()) return number_of(agree_on_norm(norm.item<double>(), operation, set));
  if (set.rank() >= 0)
    allreduce_(norm, {.name = operation, .op = ReduceOp::max, .process_set = set});
  return norm;
}

::torch::Tensor join_norms(const ::torch::Tensor& norm, double type, const std::string& operation,
                           const ProcessSet& set) {
  if (norm.is_cpu()) return number_of(join_norms(norm.item<double>(), type, operation, set));
  if (set.rank() < 0) return norm;
  if (std::isinf(type)) return agree_on_norm(norm, operation, set);
  ::torch::Tensor powers = type == 2.0 ? norm * norm : norm.pow(type);
  allreduce_(powers, {.name = operation, .op = ReduceOp::sum, .process_set = set});
  return type == 2.0 ? powers.sqrt() : powers.pow(1.0 / type);
}

void require_clip(double max_norm, double norm_type) {
  require_positive("max_norm", max_norm);
  require_positive("norm_type", norm_type);
}

void scale_to(double max_norm, const ::torch::Tensor& norm, bool refuse_nonfinite,
              const std::vector<::torch::Tensor>& gradients) {
  if (refuse_nonfinite && !std::isfinite(norm.item<double>())) {
    throw Error("clip_grad_norm: the norm of the gradients is " +
                std::to_string(norm.item<double>()));
  }
  if (!norm.is_cpu()) {
    const ::torch::Tensor factor = at::full_like(norm, max_norm).div_(norm + clip_margin);
    factor.clamp_max_(1.0);  // NaN stays
    for (const ::torch::Tensor& gradient : gradients) scale_there(gradient, factor);
  } else if (const auto factor = clip_factor(max_norm, norm.item<double>())) {
    for (::torch::Tensor gradient : gradients) gradient.mul_(*factor);
  }
}

}  // namespace kolo::internal

namespace kolo {

using namespace internal;

double detail::ReducingOptimizer::clip_grad_norm(double max_norm, const ClipOptions& options) {
  return clip_on_device(max_norm, options).item<double>();
}

double detail::ReducingOptimizer::clip_grad_norm(double max_norm) {
  return clip_grad_norm(max_norm, ClipOptions{});
}

double clip_grad_norm(::torch::optim::Optimizer& optimizer, double max_norm,
                      const ClipOptions& options) {
  return clip_grad_norm_on_device(optimizer, max_norm, options).item<double>();
}

::torch::Tensor clip_grad_norm_on_device(::torch::optim::Optimizer& optimizer, double max_norm,
                                         const ClipOptions& options) {
  if (auto* const reducing = dynamic_cast<detail::ReducingOptimizer*>(&optimizer))
    return reducing->clip_on_device(max_norm, options);
  require_clip(max_norm, options.norm_type);
  const at::NoGradGuard no_grad;
  const auto& groups = optimizer.param_groups();
  const std::vector<::torch::Tensor> gradients = gradient_elements(groups);
  ::torch::Tensor norm = norm_of(gradients, options.norm_type, device_of(groups));
  if (const auto group = shard_group_of(groups))
    norm = join_norms(norm, options.norm_type, group->operation + "norm", group->set);
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

}  // namespace kolo
