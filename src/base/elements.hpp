// SPDX-License-Identifier: Apache-2.0
// Access to elements whose type is known at run time only.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/enumerators.hpp"
#include "base/half.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

// Elements are read and written by memcpy, since memory given as void* may lie at any address.
// Compilers turn it into plain, vectorized accesses.
template <typename T>
[[nodiscard]] T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, std::int64_t index, T value) {
  std::memcpy(to + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

/// True for types that are stored as bits and computed in f32.
template <typename T>
inline constexpr bool is_half_type = requires(T half) {
  to_float(half);
};

/// The type in which elements are computed: f32 for the half types, else their own.
template <typename T>
using Computed = std::conditional_t<is_half_type<T>, float, T>;

template <typename T>
[[nodiscard]] constexpr Computed<T> computed(T element) {
  if constexpr (is_half_type<T>) {
    return to_float(element);
  } else {
    return element;
  }
}

/// The integer of type `T` that is nearest to `value`.
template <std::integral T>
[[nodiscard]] constexpr T nearest(std::int64_t value) {
  if constexpr (sizeof(T) < sizeof value) {
    using Limits = std::numeric_limits<T>;
    return static_cast<T>(std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
  } else {
    return static_cast<T>(value);
  }
}

/// Rounds a real number to the floating-point type `T`.
template <typename T, typename Real>
[[nodiscard]] constexpr T rounded(Real value) {
  if constexpr (is_half_type<T>) {
    return to_half<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

static_assert(enumerator_count<DType> == 4 + 8 + 1,
              "a new dtype belongs into visit_real or visit_integer");

/// Calls `function` with a value of the C++ type for `dtype`. Does nothing unless that is a
/// floating-point type.
template <typename Function>
constexpr void visit_real(DType dtype, Function function) {
  switch (dtype) {
    case DType::f16: return function(F16{});
    case DType::bf16: return function(BF16{});
    case DType::f32: return function(float{});
    case DType::f64: return function(double{});
    default: return;
  }
}

/// Calls `function` with a value of the C++ type for `dtype`. Does nothing unless that is an
/// integer type.
template <typename Function>
constexpr void visit_integer(DType dtype, Function function) {
  switch (dtype) {
    case DType::u8: return function(std::uint8_t{});
    case DType::i8: return function(std::int8_t{});
    case DType::u16: return function(std::uint16_t{});
    case DType::i16: return function(std::int16_t{});
    case DType::u32: return function(std::uint32_t{});
    case DType::i32: return function(std::int32_t{});
    case DType::u64: return function(std::uint64_t{});
    case DType::i64: return function(std::int64_t{});
    default: return;
  }
}

/// Rounds or widens elements, bit for bit as `rounded(computed(element))` does, as fast as memory
/// allows. One type is f32 or f64 and the other a half type. Memory may lie at any address; the
/// places must not overlap.
void convert_reals(const std::byte* from, DType from_type, std::int64_t elements, std::byte* to,
                   DType to_type);

}  // namespace kolo::internal
