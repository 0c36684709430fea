// Reductions by the vector instructions that the machine has, in one pass over the memory.
#pragma once

#include "reduction/reduce.hpp"

namespace kolo::reduction {

/// Reduce f16, bf16, f32 and f64, and integers, to what `reduce_scalar` gives. False if they do not
/// know how; then nothing was written.
[[nodiscard]] bool reduce_reals(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                                std::byte* output);
[[nodiscard]] bool reduce_integers(const Arithmetic& arithmetic, Inputs inputs,
                                   std::int64_t elements, std::byte* output);

}  // namespace kolo::reduction
