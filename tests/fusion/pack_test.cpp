// SPDX-License-Identifier: Apache-2.0
#include "fusion/pack.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../support/elements.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::fusion {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr DType all_dtypes[] = {DType::u8,  DType::i8,  DType::u16,    DType::i16, DType::u32,
                                DType::i32, DType::u64, DType::i64,    DType::f16, DType::bf16,
                                DType::f32, DType::f64, DType::boolean};

TEST(WireType, IsTheTensorsOwnWithoutCompression) {
  for (const DType dtype : all_dtypes)
    EXPECT_EQ(wire_type(dtype, ReduceOp::sum, Compression::none), dtype);
}

TEST(WireType, CompressesF32AndF64Only) {
  for (const DType dtype : all_dtypes) {
    const bool compressible = dtype == DType::f32 || dtype == DType::f64;
    EXPECT_EQ(wire_type(dtype, ReduceOp::sum, Compression::fp16),
              compressible ? DType::f16 : dtype);
    EXPECT_EQ(wire_type(dtype, ReduceOp::sum, Compression::bf16),
              compressible ? DType::bf16 : dtype);
  }
}

TEST(WireType, WidensAveragesOfShortIntegers) {
  for (const DType dtype : all_dtypes) {
    const bool is_short = !is_floating(dtype) && dtype != DType::boolean && size_of(dtype) < 8;
    EXPECT_EQ(wire_type(dtype, ReduceOp::average, Compression::fp16),
              is_short ? DType::i64 : wire_type(dtype, ReduceOp::sum, Compression::fp16));
  }
}

TEST(Convert, IntegersToI64AndToTheNearest) {
  const std::vector<std::int8_t> few{-128, -1, 0, 127};
  std::vector<std::int64_t> wide(4);
  convert(bytes_of(few.data()), DType::i8, 4, bytes_of(wide.data()), DType::i64);
  EXPECT_THAT(wide, ElementsAre(-128, -1, 0, 127));
  wide = {-129, -1, 256, std::numeric_limits<std::int64_t>::max()};
  std::vector<std::int8_t> back(4);
  convert(bytes_of(wide.data()), DType::i64, 4, bytes_of(back.data()), DType::i8);
  EXPECT_THAT(back, ElementsAre(-128, -1, 127, 127));
  std::vector<std::uint32_t> natural(4);
  convert(bytes_of(wide.data()), DType::i64, 4, bytes_of(natural.data()), DType::u32);
  EXPECT_THAT(natural, ElementsAre(0U, 0U, 256U, 0xffffffffU));
}

TEST(Convert, ToTheSameTypeChangesNoBit) {
  std::mt19937_64 random(1);
  for (const DType dtype : all_dtypes) {
    std::vector<std::byte> bits(1000 * size_of(dtype));
    for (std::byte& byte : bits) byte = static_cast<std::byte>(random());
    std::vector<std::byte> copy(bits.size());
    convert(bits.data(), dtype, 1000, copy.data(), dtype);
    EXPECT_EQ(copy, bits);
    convert(copy.data(), dtype, 1000, copy.data(), dtype);
    EXPECT_EQ(copy, bits);
  }
}

/// There and back.
template <typename T, typename Half>
std::vector<double> rounded_to(const std::vector<T>& values) {
  const auto elements = static_cast<std::int64_t>(values.size());
  std::vector<Half> halves(values.size());
  convert(bytes_of(values.data()), dtype<T>(), elements, bytes_of(halves.data()), dtype<Half>());
  std::vector<T> back(values.size());
  convert(bytes_of(halves.data()), dtype<Half>(), elements, bytes_of(back.data()), dtype<T>());
  return {back.begin(), back.end()};
}

template <typename T>
class ConvertReals : public testing::Test {};
using Compressible = testing::Types<float, double>;
TYPED_TEST_SUITE(ConvertReals, Compressible);

TYPED_TEST(ConvertReals, RoundsToNearestWithTiesToEven) {
  EXPECT_THAT((rounded_to<TypeParam, F16>({2048, 2049, 2051, -1.5, 1e9})),
              ElementsAre(2048, 2048, 2052, -1.5, std::numeric_limits<double>::infinity()));
  EXPECT_THAT((rounded_to<TypeParam, BF16>({256, 257, 259, -1.5})),
              ElementsAre(256, 256, 260, -1.5));
}

TYPED_TEST(ConvertReals, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(rounded_to<TypeParam, F16>({std::nanf("")}).front()));
  EXPECT_TRUE(std::isnan(rounded_to<TypeParam, BF16>({std::nanf("")}).front()));
}

TEST(Convert, TakesMemoryAtAnyAddressAndNoElements) {
  std::vector<std::byte> floats(3 * 4 + 1);
  for (std::int64_t i = 0; i < 3; ++i) store(floats.data() + 1, i, static_cast<float>(i + 1));
  std::vector<std::byte> halves(3 * 2 + 1);
  convert(floats.data() + 1, DType::f32, 3, halves.data() + 1, DType::f16);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(to_float(load<F16>(halves.data() + 1, i)), static_cast<float>(i + 1));
  convert(nullptr, DType::f32, 0, nullptr, DType::f16);
  convert(nullptr, DType::f32, 0, nullptr, DType::f32);
}

TEST(Pack, LaysPartsEndToEndAndBack) {
  const std::vector<float> first{1, 2, 3};
  const std::vector<float> second{4, 5};
  std::vector<float> first_result(3);
  std::vector<float> second_result(2);
  const Part parts[] = {{bytes_of(first.data()), bytes_of(first_result.data()), 3},
                        {nullptr, nullptr, 0},
                        {bytes_of(second.data()), bytes_of(second_result.data()), 2}};
  for (const DType wire : {DType::f32, DType::f16, DType::bf16}) {
    first_result.assign(3, 0.0F);
    second_result.assign(2, 0.0F);
    std::vector<std::byte> buffer(5 * size_of(wire));
    pack(parts, DType::f32, wire, buffer.data());
    std::vector<float> packed(5);
    convert(buffer.data(), wire, 5, bytes_of(packed.data()), DType::f32);
    EXPECT_THAT(packed, ElementsAre(1, 2, 3, 4, 5));
    unpack(buffer.data(), wire, DType::f32, parts);
    EXPECT_THAT(first_result, ElementsAreArray(first));
    EXPECT_THAT(second_result, ElementsAreArray(second));
  }
}

}  // namespace
}  // namespace kolo::internal::fusion
