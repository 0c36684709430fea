// Reductions element by element: what the vectors leave, and what they are measured by.
#pragma once

#include "reduction/reduce.hpp"

namespace kolo::reduction {

/// As `reduce`, of all that it does not refuse. There is at least one element.
void reduce_scalar(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                   std::byte* output);

}  // namespace kolo::reduction
