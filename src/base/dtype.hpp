// SPDX-License-Identifier: Apache-2.0
// Facts about element types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/enumerators.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

template <>
inline constexpr DType last_enumerator<DType> = DType::boolean;

[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
    case DType::u16:
    case DType::i16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u32:
    case DType::i32:
    case DType::f32: return 4;
    case DType::u64:
    case DType::i64:
    case DType::f64: return 8;
  }
  return 0;
}

/// `size_of` as a signed number, for arithmetic with element counts.
[[nodiscard]] constexpr std::int64_t signed_size_of(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}
[[nodiscard]] constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}
/// An integer of at most 32 bits.
[[nodiscard]] constexpr bool is_short_integer(DType dtype) {
  return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::u16 || dtype == DType::i16 ||
         dtype == DType::u32 || dtype == DType::i32;
}
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return is_half(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

}  // namespace kolo::internal
