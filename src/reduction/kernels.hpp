// SPDX-License-Identifier: Apache-2.0
// The loops behind `reduce`. The vector loops make one pass over the memory. The scalar loops
// reduce everything else, and are the reference for the vector loops.
#pragma once

#include "reduction/reduce.hpp"

namespace kolo::internal::reduction {

/// Reduces f16, bf16, f32, f64 and unscaled integers to the same bits as `reduce_scalar`. Returns
/// false, with nothing written, for a combination that it does not support.
[[nodiscard]] bool reduce_vectors(const Arithmetic& arithmetic, Inputs inputs,
                                  std::int64_t elements, std::byte* output);

/// Reduces everything that `reduce` accepts. There is at least one element.
void reduce_scalar(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                   std::byte* output);

}  // namespace kolo::internal::reduction
