// SPDX-License-Identifier: Apache-2.0
// Both half types over all their values, and the rounding of values between two of them.
#include "base/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kolo::internal {
namespace {

constexpr std::uint32_t all_values = 1U << 16U;
constexpr float infinity = std::numeric_limits<float>::infinity();

F16 f16(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }
BF16 bf16(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

/// The value of an F16 by its definition.
double f16_value(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10U & 31U);
  const double mantissa = bits & 1023U;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

bool f16_is_finite(std::uint32_t bits) { return (bits >> 10U & 31U) != 31U; }
bool is_nan(F16 half) { return (half.bits & 0x7fffU) > 0x7c00U; }
bool is_nan(BF16 half) { return (half.bits & 0x7fffU) > 0x7f80U; }

TEST(F16, EveryFiniteValueIsWhatItsDefinitionSays) {
  for (std::uint32_t bits = 0; bits < all_values; ++bits) {
    if (!f16_is_finite(bits)) continue;
    ASSERT_EQ(static_cast<double>(to_float(f16(bits))), f16_value(bits)) << bits;
  }
}

TEST(F16, EveryValueComesBack) {
  for (std::uint32_t bits = 0; bits < all_values; ++bits) {
    const float value = to_float(f16(bits));
    if (is_nan(f16(bits))) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(is_nan(to_half<F16>(value))) << bits;
      ASSERT_EQ(to_half<F16>(value).bits & 0x8000U, bits & 0x8000U) << bits;
    } else {
      ASSERT_EQ(to_half<F16>(value).bits, bits) << value;
    }
  }
}

TEST(F16, RoundsToNearestAndTiesToEven) {
  // Between each value and the next above it, in both signs; the halfway point is exact in f32.
  for (std::uint32_t bits = 0; bits < 0x7bffU; ++bits) {
    const float low = to_float(f16(bits));
    const float high = to_float(f16(bits + 1));
    const float middle = (low + high) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_half<F16>(middle).bits, even) << bits;
    ASSERT_EQ(to_half<F16>(-middle).bits, even | 0x8000U) << bits;
    ASSERT_EQ(to_half<F16>(std::nextafter(middle, low)).bits, bits) << bits;
    ASSERT_EQ(to_half<F16>(std::nextafter(middle, high)).bits, bits + 1) << bits;
  }
}

TEST(F16, WhatIsTooLargeBecomesInfinite) {
  EXPECT_EQ(to_half<F16>(65504.0F).bits, 0x7bffU);
  EXPECT_EQ(to_half<F16>(std::nextafter(65520.0F, 0.0F)).bits, 0x7bffU);
  EXPECT_EQ(to_half<F16>(65520.0F).bits, 0x7c00U);
  EXPECT_EQ(to_half<F16>(-65520.0F).bits, 0xfc00U);
  EXPECT_EQ(to_half<F16>(std::numeric_limits<float>::max()).bits, 0x7c00U);
  EXPECT_EQ(to_half<F16>(infinity).bits, 0x7c00U);
  EXPECT_EQ(to_float(f16(0xfc00U)), -infinity);
}

TEST(F16, WhatIsTooSmallBecomesZeroOfItsSign) {
  EXPECT_EQ(to_half<F16>(std::ldexp(1.0F, -25)).bits, 0U);  // a tie
  EXPECT_EQ(to_half<F16>(std::nextafter(std::ldexp(1.0F, -25), 1.0F)).bits, 1U);
  EXPECT_EQ(to_half<F16>(std::numeric_limits<float>::denorm_min()).bits, 0U);
  EXPECT_EQ(to_half<F16>(-std::numeric_limits<float>::denorm_min()).bits, 0x8000U);
}

TEST(F16, EveryNaNStaysNaN) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU})
    EXPECT_TRUE(is_nan(to_half<F16>(std::bit_cast<float>(bits)))) << bits;
}

TEST(BF16, EveryValueIsTheUpperHalfOfAnF32AndComesBack) {
  for (std::uint32_t bits = 0; bits < all_values; ++bits) {
    const float value = to_float(bf16(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16U);
    if (is_nan(bf16(bits))) {
      ASSERT_TRUE(is_nan(to_half<BF16>(value))) << bits;
    } else {
      ASSERT_EQ(to_half<BF16>(value).bits, bits);
    }
  }
}

TEST(BF16, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < all_values; ++bits) {
    if ((bits & 0x7f80U) == 0x7f80U) continue;
    const auto rounded = [&](std::uint32_t lower_half) {
      return to_half<BF16>(std::bit_cast<float>(bits << 16U | lower_half)).bits;
    };
    ASSERT_EQ(rounded(0x7fffU), bits);
    ASSERT_EQ(rounded(0x8000U), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(rounded(0x8001U), bits + 1);
  }
}

TEST(BF16, WhatIsTooLargeBecomesInfinite) {
  EXPECT_EQ(to_half<BF16>(std::numeric_limits<float>::max()).bits, 0x7f80U);
  EXPECT_EQ(to_half<BF16>(-std::numeric_limits<float>::max()).bits, 0xff80U);
  EXPECT_EQ(to_half<BF16>(infinity).bits, 0x7f80U);
}

TEST(BF16, EveryNaNStaysNaN) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7f80ffffU, 0x7fffffffU, 0xff800001U, 0xffffffffU})
    EXPECT_TRUE(is_nan(to_half<BF16>(std::bit_cast<float>(bits)))) << bits;
}

}  // namespace
}  // namespace kolo::internal
