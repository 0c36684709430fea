// SPDX-License-Identifier: Apache-2.0
// The joint norm of gradients in CPU memory.
#pragma once

#include <vector>

#include "kolo/tensor.hpp"

namespace kolo::internal {

/// The root of the sum of all elements' squares, in f64 and in the order of memory. Throws
/// InvalidArgument, in the name of `function`, for integers and for GPU memory.
[[nodiscard]] double norm_of(const std::vector<NamedTensor>& gradients, const char* function);

/// Multiplies all elements.
void multiply(const std::vector<NamedTensor>& gradients, double factor);

}  // namespace kolo::internal
