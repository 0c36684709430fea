// SPDX-License-Identifier: Apache-2.0
// The reduced gradients of an optimizer, between backward and its step.
#pragma once

#include <torch/types.h>

#include <vector>

#include "torch/parameter_names.hpp"

namespace kolo::internal {

/// The gradient of each parameter that has one, once.
[[nodiscard]] std::vector<::torch::Tensor> gradients_of(const ParameterGroups& groups);

/// The tensor that holds the elements of a reduced gradient.
[[nodiscard]] ::torch::Tensor elements_of(const ::torch::Tensor& gradient);

/// Those of all gradients.
[[nodiscard]] std::vector<::torch::Tensor> gradient_elements(const ParameterGroups& groups);

/// Multiplies all elements. Returns whether all were finite before. Waits for the device once.
[[nodiscard]] bool scale_and_check(const std::vector<::torch::Tensor>& gradients, double factor);

}  // namespace kolo::internal
