// SPDX-License-Identifier: Apache-2.0
// The reduced gradients of an optimizer, between backward and its step.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "kolo/process_set.hpp"
#include "torch/optimizer/parameter_names.hpp"

namespace kolo::internal {

/// The gradients of all parameters that have one, to be changed in place. A tied weight counts
/// once. A gradient whose elements share memory is replaced by a copy.
[[nodiscard]] std::vector<::torch::Tensor> gradients_of(const ParameterGroups& groups);

/// The tensor that holds the elements of a reduced gradient.
[[nodiscard]] ::torch::Tensor elements_of(const ::torch::Tensor& gradient);

/// The elements of all gradients.
[[nodiscard]] std::vector<::torch::Tensor> gradient_elements(const ParameterGroups& groups);

/// The first GPU that a parameter is on, else the CPU. Equal on all ranks, even those without
/// gradients.
[[nodiscard]] ::torch::Device device_of(const ParameterGroups& groups);

/// The norm of all elements together, in f64, on `device`.
[[nodiscard]] ::torch::Tensor norm_of(const std::vector<::torch::Tensor>& gradients, double type,
                                      const ::torch::Device& device);

/// Like the functions of gradient_norm.hpp, where the norm is. Collective.
[[nodiscard]] ::torch::Tensor agree_on_norm(::torch::Tensor norm, const std::string& operation,
                                            const ProcessSet& set);
[[nodiscard]] ::torch::Tensor join_norms(const ::torch::Tensor& norm, double type,
                                         const std::string& operation, const ProcessSet& set);

/// Throws InvalidArgument unless the norm's limit and type are positive.
void require_clip(double max_norm, double norm_type);

/// Scales the gradients if `norm` exceeds `max_norm`. Other ranks' shards may be part of the norm.
/// Throws Error for a norm that is not finite if `refuse_nonfinite`. Only that, and gradients on
/// CPUs beside a norm on a GPU, wait for the GPU.
void scale_to(double max_norm, const ::torch::Tensor& norm, bool refuse_nonfinite,
              const std::vector<::torch::Tensor>& gradients);

/// Multiplies all elements. Returns a number on `device`: 1 if an element was not finite before,
/// else 0.
[[nodiscard]] ::torch::Tensor scale_and_check(const std::vector<::torch::Tensor>& gradients,
                                              double factor, const ::torch::Device& device);

}  // namespace kolo::internal
