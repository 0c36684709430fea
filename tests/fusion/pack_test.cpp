#include "fusion/pack.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/dtype.hpp"
#include "base/half.hpp"

namespace kolo::fusion {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

template <typename T>
constexpr bool is_half_type = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

template <typename T>
constexpr DType dtype() {
  if constexpr (std::is_same_v<T, F16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, BF16>)
    return DType::bf16;
  else
    return dtype_of<T>;
}

template <typename T>
T make(double value) {
  if constexpr (std::is_same_v<T, F16>)
    return to_f16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, BF16>)
    return to_bf16(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <typename T>
double value_of(T element) {
  if constexpr (is_half_type<T>)
    return static_cast<double>(to_float(element));
  else
    return static_cast<double>(element);
}

/// What `values` become when packed with `prescale`, then unpacked.
template <typename T>
std::vector<double> pack_and_unpack(const std::vector<double>& values, double prescale,
                                    std::int64_t divisor, double postscale) {
  std::vector<T> tensor;
  for (const double value : values) tensor.push_back(make<T>(value));
  const auto elements = static_cast<std::int64_t>(tensor.size());
  std::vector<std::byte> buffer(tensor.size() * size_of(wire_type(dtype<T>())));
  pack(tensor.data(), elements, dtype<T>(), prescale, buffer.data());
  std::vector<T> result(tensor.size());
  unpack(buffer.data(), elements, dtype<T>(), divisor, postscale, result.data());
  std::vector<double> back;
  for (const T element : result) back.push_back(value_of(element));
  return back;
}

template <typename T>
class PackNumbers : public testing::Test {};
using Numbers =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                   std::int32_t, std::uint64_t, std::int64_t, F16, BF16, float, double>;
TYPED_TEST_SUITE(PackNumbers, Numbers);

template <typename T>
class PackSigned : public testing::Test {};
using SignedIntegers = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(PackSigned, SignedIntegers);

template <typename T>
class PackIntegers : public testing::Test {};
using Integers = testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                                std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
TYPED_TEST_SUITE(PackIntegers, Integers);

TYPED_TEST(PackNumbers, AScaleOfOneChangesNoBit) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bits(1000 * sizeof(TypeParam));
  for (std::byte& byte : bits) byte = static_cast<std::byte>(random());
  std::vector<TypeParam> tensor(1000);
  std::memcpy(tensor.data(), bits.data(), bits.size());
  if constexpr (is_half_type<TypeParam>) {  // NaNs come back as NaNs, but as quiet ones
    for (TypeParam& half : tensor)
      if (std::isnan(to_float(half))) half = make<TypeParam>(1);
    std::memcpy(bits.data(), tensor.data(), bits.size());
  }
  std::vector<std::byte> buffer(1000 * size_of(wire_type(dtype<TypeParam>())));
  pack(tensor.data(), 1000, dtype<TypeParam>(), 1.0, buffer.data());
  std::vector<TypeParam> result(1000);
  unpack(buffer.data(), 1000, dtype<TypeParam>(), 1, 1.0, result.data());
  EXPECT_EQ(std::memcmp(result.data(), bits.data(), bits.size()), 0);
}

TYPED_TEST(PackNumbers, ScalesBothWays) {
  EXPECT_THAT((pack_and_unpack<TypeParam>({0, 1, 2, 10}, 4.0, 2, 3.0)), ElementsAre(0, 6, 12, 60));
  EXPECT_THAT((pack_and_unpack<TypeParam>({0, 6, 60}, 0.5, 1, 1.0)), ElementsAre(0, 3, 30));
}

TYPED_TEST(PackNumbers, TheAverageOfEqualValuesIsThatValue) {
  for (std::int64_t ranks = 1; ranks <= 64; ++ranks) {
    const auto sum = static_cast<double>(ranks);
    EXPECT_THAT((pack_and_unpack<TypeParam>({sum}, 1.0, ranks, 1.0)), ElementsAre(1)) << ranks;
  }
}

TYPED_TEST(PackNumbers, NoElementsTouchNothing) {
  pack(nullptr, 0, dtype<TypeParam>(), 2.0, nullptr);
  unpack(nullptr, 0, dtype<TypeParam>(), 3, 2.0, nullptr);
}

TYPED_TEST(PackNumbers, TakesMemoryAtAnyAddress) {
  constexpr std::size_t size = sizeof(TypeParam);
  std::vector<std::byte> odd(3 * size + 1);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto element = make<TypeParam>(static_cast<double>(i) + 1);
    std::memcpy(odd.data() + 1 + i * size, &element, size);
  }
  std::vector<std::byte> buffer(3 * 8);
  pack(odd.data() + 1, 3, dtype<TypeParam>(), 2.0, buffer.data());
  unpack(buffer.data(), 3, dtype<TypeParam>(), 1, 2.0, odd.data() + 1);
  std::vector<TypeParam> result(3);
  std::memcpy(result.data(), odd.data() + 1, 3 * size);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(value_of(result[i]), 4.0 * (static_cast<double>(i) + 1));
}

TYPED_TEST(PackIntegers, TruncateWhenDividedAndWhenScaled) {
  EXPECT_THAT((pack_and_unpack<TypeParam>({3, 4, 5, 6, 100}, 1.0, 3, 1.0)),
              ElementsAre(1, 1, 1, 2, 33));
  EXPECT_THAT((pack_and_unpack<TypeParam>({1, 3, 5}, 0.5, 1, 1.0)), ElementsAre(0, 1, 2));
  EXPECT_THAT((pack_and_unpack<TypeParam>({5, 7}, 1.0, 2, 1.5)),
              ElementsAre(3, 4));  // 2, 3 times 1.5
}

TYPED_TEST(PackIntegers, StopAtTheLimitsOfTheirType) {
  using Limits = std::numeric_limits<TypeParam>;
  const std::vector<TypeParam> tensor{Limits::max(), Limits::min(), 1};
  std::vector<TypeParam> result(3);
  pack(tensor.data(), 3, dtype_of<TypeParam>, 2.0, reinterpret_cast<std::byte*>(result.data()));
  EXPECT_THAT(result, ElementsAre(Limits::max(), Limits::min(), 2));
  pack(tensor.data(), 3, dtype_of<TypeParam>, -1e300, reinterpret_cast<std::byte*>(result.data()));
  EXPECT_EQ(result[0], Limits::min());
  EXPECT_EQ(result[2], Limits::min());
  pack(tensor.data(), 3, dtype_of<TypeParam>, std::nan(""),
       reinterpret_cast<std::byte*>(result.data()));
  EXPECT_THAT(result, ElementsAre(0, 0, 0));
}

TYPED_TEST(PackIntegers, LargestValuesAreDividedExactly) {
  const TypeParam largest = std::numeric_limits<TypeParam>::max();
  TypeParam result = 0;
  unpack(reinterpret_cast<const std::byte*>(&largest), 1, dtype_of<TypeParam>, 3, 1.0, &result);
  EXPECT_EQ(result, static_cast<TypeParam>(largest / 3));
}

TYPED_TEST(PackSigned, TruncateTowardZero) {
  EXPECT_THAT((pack_and_unpack<TypeParam>({-3, -4, -5, -6, -100, 5}, 1.0, 3, 1.0)),
              ElementsAre(-1, -1, -1, -2, -33, 1));
  EXPECT_THAT((pack_and_unpack<TypeParam>({-1, -3, -5}, 0.5, 1, 1.0)), ElementsAre(0, -1, -2));
  EXPECT_THAT((pack_and_unpack<TypeParam>({-5, -7}, 1.0, 2, 1.5)), ElementsAre(-3, -4));
}

TEST(PackReals, DivisionIsRoundedOnce) {
  for (const std::int64_t divisor : {3, 5, 7, 49, 1000}) {
    std::vector<float> tensor(1000);
    std::iota(tensor.begin(), tensor.end(), 1.0F);
    std::vector<float> expected;
    for (const float value : tensor) expected.push_back(value / static_cast<float>(divisor));
    unpack(reinterpret_cast<const std::byte*>(tensor.data()), 1000, DType::f32, divisor, 1.0,
           tensor.data());
    EXPECT_THAT(tensor, ElementsAreArray(expected)) << divisor;
  }
}

TEST(PackReals, DivisorAndScaleAreOneFactor) {
  std::vector<double> tensor{1, 2, 7};
  unpack(reinterpret_cast<const std::byte*>(tensor.data()), 3, DType::f64, 3, 0.3, tensor.data());
  const double factor = 0.3 / 3.0;
  EXPECT_THAT(tensor, ElementsAre(factor, 2 * factor, 7 * factor));
}

TEST(PackReals, InfinitiesAndNaNsPass) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto check = [=](const std::vector<double>& result) {
    EXPECT_EQ(result[0], infinity);
    EXPECT_EQ(result[1], -infinity);
    EXPECT_TRUE(std::isnan(result[2]));
  };
  const std::vector<double> values{infinity, -infinity, std::nan("")};
  check(pack_and_unpack<F16>(values, 2.0, 3, 1.0));
  check(pack_and_unpack<BF16>(values, 2.0, 3, 1.0));
  check(pack_and_unpack<float>(values, 2.0, 3, 1.0));
  check(pack_and_unpack<double>(values, 2.0, 3, 1.0));
}

TEST(PackHalves, TravelAsF32AndAreRoundedAtTheEnd) {
  EXPECT_EQ(wire_type(DType::f16), DType::f32);
  EXPECT_EQ(wire_type(DType::bf16), DType::f32);
  // 2049 needs twelve bits: it is exact on the way, and a tie in the end.
  const float sum = 2049.0F;
  F16 result{};
  unpack(reinterpret_cast<const std::byte*>(&sum), 1, DType::f16, 1, 1.0, &result);
  EXPECT_EQ(to_float(result), 2048.0F);
  unpack(reinterpret_cast<const std::byte*>(&sum), 1, DType::f16, 3, 1.0, &result);
  EXPECT_EQ(to_float(result), 683.0F);
}

TEST(PackBooleans, AreCopied) {
  EXPECT_EQ(wire_type(DType::boolean), DType::boolean);
  const std::array<bool, 3> tensor{true, false, true};
  std::array<bool, 3> result{};
  std::array<std::byte, 3> buffer{};
  pack(tensor.data(), 3, DType::boolean, 1.0, buffer.data());
  unpack(buffer.data(), 3, DType::boolean, 1, 1.0, result.data());
  EXPECT_EQ(result, tensor);
}

}  // namespace
}  // namespace kolo::fusion
