// The loops behind `reduce`. Those with vector instructions make one pass over the memory; those
// that go element by element do what the vectors leave, and are what they are measured by.
#pragma once

#include "reduction/reduce.hpp"

namespace kolo::internal::reduction {

/// Reduce f16, bf16, f32 and f64, and integers, to what `reduce_scalar` gives. False if they do not
/// know how; then nothing was written.
[[nodiscard]] bool reduce_reals(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                                std::byte* output);
[[nodiscard]] bool reduce_integers(const Arithmetic& arithmetic, Inputs inputs,
                                   std::int64_t elements, std::byte* output);

/// As `reduce`, of all that it does not refuse. There is at least one element.
void reduce_scalar(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                   std::byte* output);

}  // namespace kolo::internal::reduction
