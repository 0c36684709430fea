// Between the wide floating-point types and the half types, as fast as memory allows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kolo/tensor.hpp"

namespace kolo {

/// Rounds or widens elements, bit for bit as `rounded(computed(element))` does. One type is f32 or
/// f64 and the other f16 or bf16. Memory may lie at any address; the places must not overlap.
void convert_reals(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
                   DType to_type);

}  // namespace kolo
