// Facts about element types.
#pragma once

#include <cstddef>

#include "kolo/tensor.hpp"

namespace kolo {

[[nodiscard]] std::size_t size_of(DType dtype);
[[nodiscard]] bool is_floating(DType dtype);  // f16, bf16, f32, f64
[[nodiscard]] bool is_half(DType dtype);      // f16, bf16

}  // namespace kolo
