// SPDX-License-Identifier: Apache-2.0
#include "base/elements.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "../support/elements.hpp"
#include "../support/instruction_sets.hpp"

namespace kolo::internal {
namespace {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <typename T>
BitsOf<T> bits_of(T value) {
  return std::bit_cast<BitsOf<T>>(value);
}

/// Converts at addresses that suit no type.
template <typename From, typename To>
std::vector<To> converted(const std::vector<From>& from) {
  std::vector<std::byte> odd_from(from.size() * sizeof(From) + 1);
  std::vector<std::byte> odd_to(from.size() * sizeof(To) + 1);
  std::memcpy(odd_from.data() + 1, from.data(), from.size() * sizeof(From));
  convert_reals(odd_from.data() + 1, dtype<From>(), static_cast<std::int64_t>(from.size()),
                odd_to.data() + 1, dtype<To>());
  std::vector<To> to(from.size());
  std::memcpy(to.data(), odd_to.data() + 1, to.size() * sizeof(To));
  return to;
}

template <typename From, typename To>
void expect_as_scalar(const std::vector<From>& from) {
  for_each_instruction_set([&] {
    const std::vector<To> to = converted<From, To>(from);
    for (std::size_t i = 0; i < from.size(); ++i)
      ASSERT_EQ(bits_of(to[i]), bits_of(rounded<To>(computed(from[i]))))
          << "of the bits " << bits_of(from[i]);
  });
}

template <typename Half>
std::vector<Half> every_half() {
  std::vector<Half> all;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits)
    all.push_back({static_cast<std::uint16_t>(bits)});
  return all;
}

/// Every upper half, with lower halves at, below and above where either half type rounds.
std::vector<float> many_floats() {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper <= 0xFFFF; ++upper)
    for (const std::uint32_t lower : {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x2FFFU, 0x3000U, 0x3001U,
                                      0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      all.push_back(std::bit_cast<float>(upper << 16U | lower));
  return all;
}

/// The same with a little less and a little more, and what no f32 can hold.
std::vector<double> many_doubles() {
  using Limits = std::numeric_limits<double>;
  std::vector<double> all{Limits::max(),      -Limits::max(),        Limits::min(),
                          Limits::infinity(), -Limits::denorm_min(), Limits::quiet_NaN()};
  for (const float value : many_floats())
    for (const double factor : {1.0, 1.0 - 0x1p-30, 1.0 + 0x1p-24})
      all.push_back(static_cast<double>(value) * factor);
  return all;
}

template <typename Half>
class ConvertHalves : public testing::Test {};
using Halves = testing::Types<F16, BF16>;
TYPED_TEST_SUITE(ConvertHalves, Halves);

TYPED_TEST(ConvertHalves, EveryHalfWidensAsTheScalarCodeDoes) {
  expect_as_scalar<TypeParam, float>(every_half<TypeParam>());
  expect_as_scalar<TypeParam, double>(every_half<TypeParam>());
}

TYPED_TEST(ConvertHalves, FloatsRoundAsInTheScalarCode) {
  expect_as_scalar<float, TypeParam>(many_floats());
}

TYPED_TEST(ConvertHalves, DoublesRoundAsInTheScalarCode) {
  expect_as_scalar<double, TypeParam>(many_doubles());
}

TYPED_TEST(ConvertHalves, AnyNumberOfElementsAndNothingBeyond) {
  for (std::size_t length = 1; length < 150; ++length) {
    std::vector<float> from;
    for (std::size_t i = 0; i < length; ++i) from.push_back(static_cast<float>(i + 1));
    expect_as_scalar<float, TypeParam>(from);
    for_each_instruction_set([&] {
      std::vector<TypeParam> to(length + 64, TypeParam{0x1234});
      convert_reals(bytes_of(from.data()), DType::f32, static_cast<std::int64_t>(length),
                    bytes_of(to.data()), dtype<TypeParam>());
      for (std::size_t i = length; i < to.size(); ++i) ASSERT_EQ(to[i].bits, 0x1234) << length;
    });
  }
}

}  // namespace
}  // namespace kolo::internal
