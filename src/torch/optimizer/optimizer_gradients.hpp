// SPDX-License-Identifier: Apache-2.0
// The reduced gradients of an optimizer, between backward and its step.
#pragma once

#include <torch/types.h>

#include <vector>

#include "torch/optimizer/parameter_names.hpp"

namespace kolo::internal {

/// The gradients of all parameters that have one, to be changed in place. A tied weight counts
/// once. A gradient whose elements share memory is replaced by a copy.
[[nodiscard]] std::vector<::torch::Tensor> gradients_of(const ParameterGroups& groups);

/// The tensor that holds the elements of a reduced gradient.
[[nodiscard]] ::torch::Tensor elements_of(const ::torch::Tensor& gradient);

/// The elements of all gradients.
[[nodiscard]] std::vector<::torch::Tensor> gradient_elements(const ParameterGroups& groups);

/// The norm of all elements together, in f64.
[[nodiscard]] double norm_of(const std::vector<::torch::Tensor>& gradients, double type);

/// Throws InvalidArgument unless the norm's limit and type are positive.
void require_clip(double max_norm, double norm_type);

/// Scales the gradients if `norm` exceeds `max_norm`. Other ranks' shards may be part of the norm.
/// Throws Error for a norm that is not finite if `refuse_nonfinite`.
void scale_to(double max_norm, double norm, bool refuse_nonfinite,
              const std::vector<::torch::Tensor>& gradients);

/// Multiplies all elements. Returns whether all were finite before. Waits for the device once.
[[nodiscard]] bool scale_and_check(const std::vector<::torch::Tensor>& gradients, double factor);

}  // namespace kolo::internal
