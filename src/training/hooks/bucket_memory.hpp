// SPDX-License-Identifier: Apache-2.0
// The elements of a bucket's tensors as consecutive f32.
#pragma once

#include <cstdint>
#include <span>

#include "kolo/tensor.hpp"

namespace kolo::internal {

/// True if all tensors are of a floating-point type.
[[nodiscard]] bool are_real(std::span<const TensorView> tensors) noexcept;

[[nodiscard]] std::int64_t elements_of(std::span<const TensorView> tensors) noexcept;

/// Writes `factor` times each element to `to`, rounded to f32, and adds `more` if it is not null.
void gather(std::span<const TensorView> tensors, double factor, const float* more, float* to);

/// Writes the elements to the tensors, rounded to their types.
void scatter(const float* from, std::span<const TensorView> tensors);

}  // namespace kolo::internal
