// SPDX-License-Identifier: Apache-2.0
// The two-byte floating-point types, stored as bits, and their conversions to and from f32.
// Conversions to the half types round to nearest, ties to even; NaN stays NaN. All conversions
// compile without branches, so that loops over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

namespace kolo::internal {

/// IEEE binary16: 1 sign bit, 5 of exponent, 10 of mantissa.
struct F16 {
  std::uint16_t bits;
};

/// The upper half of an f32: 1 sign bit, 8 of exponent, 7 of mantissa.
struct BF16 {
  std::uint16_t bits;
};

/// Rounds to the half type `Half`.
template <typename Half>
[[nodiscard]] constexpr Half to_half(float value);

// The algorithms are Fabian Giesen's float_to_half_fast3_rtne and half_to_float_fast5 (public
// domain). A float addition shifts a subnormal's mantissa to its place and rounds it.

[[nodiscard]] constexpr float to_float(F16 half) {
  constexpr std::uint32_t exponent_mask = 0x7c00U << 13U;
  constexpr std::uint32_t smallest_normal = (127U - 14U) << 23U;
  const std::uint32_t magnitude = (half.bits & 0x7fffU) << 13U;
  const std::uint32_t exponent = magnitude & exponent_mask;
  const std::uint32_t normal = magnitude + ((127U - 15U) << 23U);
  const std::uint32_t infinite_or_nan = normal + ((128U - 16U) << 23U);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(magnitude + smallest_normal) - std::bit_cast<float>(smallest_normal));
  const std::uint32_t value = exponent == exponent_mask ? infinite_or_nan
                              : exponent == 0U          ? subnormal
                                                        : normal;
  return std::bit_cast<float>(value | (half.bits & 0x8000U) << 16U);
}

template <>
constexpr F16 to_half<F16>(float value) {
  constexpr std::uint32_t infinity = 255U << 23U;
  constexpr std::uint32_t too_large = (127U + 16U) << 23U;  // 2^16: becomes infinite
  constexpr std::uint32_t smallest_normal = (127U - 14U) << 23U;
  constexpr std::uint32_t subnormal_shift = (127U - 15U + 23U - 10U + 1U) << 23U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t normal = (magnitude - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13U;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) +
                                   std::bit_cast<float>(subnormal_shift)) -
      subnormal_shift;
  const std::uint32_t half = magnitude > infinity          ? 0x7e00U
                             : magnitude >= too_large      ? 0x7c00U
                             : magnitude < smallest_normal ? subnormal
                                                           : normal;
  return {static_cast<std::uint16_t>(half | (bits >> 16U & 0x8000U))};
}

[[nodiscard]] constexpr float to_float(BF16 half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half.bits) << 16U);
}

template <>
constexpr BF16 to_half<BF16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t quiet = bits >> 16U | 0x40U;
  // Truncation could clear all mantissa bits of a NaN and make it infinite, so set the quiet bit.
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
  return {static_cast<std::uint16_t>(nan ? quiet : rounded)};
}

}  // namespace kolo::internal
