// SPDX-License-Identifier: Apache-2.0
// The arithmetic of reductions, without communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kolo/types.hpp"

namespace kolo::internal::reduction {

struct Arithmetic {
  ReduceOp op = ReduceOp::sum;  // anything but adasum
  DType dtype = DType::f32;     // the type of the inputs
  double prescale = 1.0;
  double postscale = 1.0;
  std::int64_t divisor = 1;
  // Output type other than `dtype`: f32 or f64 for f16 and bf16, a shorter integer for i64.
  std::optional<DType> result{};
};

using Inputs = std::span<const std::byte* const>;

/// Throws InvalidArgument if `op` has no meaning for elements of `dtype`.
void check_arithmetic(ReduceOp op, DType dtype);

/// output[k] = (prescale * inputs[0][k] op prescale * inputs[1][k] op ...) / divisor * postscale,
/// in this order. There is at least one input. The output may be one of the inputs if it has their
/// type. Memory may lie at any address.
///
/// f16 and bf16 are computed in f32 and rounded once. Without a postscale, f32 and f64 are divided
/// by the divisor; with a postscale, they are multiplied by postscale / divisor. A NaN in any input
/// gives NaN. Sums and products of integers wrap. Integers are scaled in double and divided in 64
/// bits, and both results are truncated toward zero. A scaled result beyond the range of the type,
/// or a result beyond that of a shorter output type, becomes the nearest value in range. Booleans
/// have neither scales nor divisors. Throws InvalidArgument as `check_arithmetic` does.
void reduce(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements, std::byte* output);

using Outputs = std::span<std::byte* const>;

/// Writes the same results to each output; there is at least one. An output may be one of the
/// inputs if it has their type. No two outputs overlap.
void reduce(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements, Outputs outputs);

// The loops behind `reduce`.

/// Reduces f16, bf16, f32, f64 and unscaled integers with vector instructions, in one pass over the
/// memory, to the bits that `reduce_scalar` gives. Returns false, without writing anything, for
/// arithmetic that it does not support.
[[nodiscard]] bool reduce_vectors(const Arithmetic& arithmetic, Inputs inputs,
                                  std::int64_t elements, std::byte* output);

/// Reduces everything that `reduce` accepts, and is the reference for `reduce_vectors`. There is at
/// least one element.
void reduce_scalar(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                   std::byte* output);

}  // namespace kolo::internal::reduction
