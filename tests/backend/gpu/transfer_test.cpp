// SPDX-License-Identifier: Apache-2.0
// The kernel converts and scales each element exactly as the CPU's reductions and conversions do.
#include "backend/gpu/runtime/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../../support/elements.hpp"
#include "backend/gpu/runtime/transfer_element.hpp"
#include "base/elements.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::gpu {
namespace {

struct Run {
  const Segment& segment;

  template <typename From, typename To>
  void operator()() const {
    const TransferElement<From, To> element(segment.scaling);
    for (std::int64_t i = 0; i < segment.elements; ++i)
      store<To>(segment.to, i, element(load<From>(segment.from, i)));
  }
};

void run(const Segment& segment) {
  const Run work{segment};
  visit_types(segment.from_type, segment.to_type, work);
}

/// All sorts of bits: of the half types every value, of the others large and small ones.
template <typename T>
std::vector<T> values() {
  std::vector<T> all(1 << 16);
  std::uint64_t bits = 88172645463325252ULL;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bits ^= bits << 13U;
    bits ^= bits >> 7U;
    bits ^= bits << 17U;
    const std::uint64_t pattern = sizeof(T) == 2 ? i : bits;
    std::memcpy(&all[i], &pattern, sizeof(T));
  }
  return all;
}

/// NaNs may differ in their bits.
template <typename T>
bool same(T a, T b) {
  const bool both_nan = std::isnan(value_of(a)) && std::isnan(value_of(b));
  return both_nan || std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
class TransferTest : public testing::Test {};
TYPED_TEST_SUITE(TransferTest, Numbers);

TYPED_TEST(TransferTest, ScalesAsTheCpuDoes) {
  const std::vector<TypeParam> input = values<TypeParam>();
  const auto elements = static_cast<std::int64_t>(input.size());
  const std::byte* const inputs[] = {internal::bytes_of(input.data())};
  for (const Scaling scaling :
       {Scaling{1, 0.37}, Scaling{3, 1.0}, Scaling{4, 1.0}, Scaling{7, 2.5}, Scaling{1, 1.0}}) {
    SCOPED_TRACE(testing::Message() << scaling.divisor << ", " << scaling.scale);
    std::vector<TypeParam> expected(input.size());
    reduction::reduce(
        {.dtype = dtype<TypeParam>(), .postscale = scaling.scale, .divisor = scaling.divisor},
        inputs, elements, internal::bytes_of(expected.data()));
    std::vector<TypeParam> found(input.size());
    run({.from = internal::bytes_of(input.data()),
         .to = internal::bytes_of(found.data()),
         .elements = elements,
         .scaling = scaling,
         .from_type = dtype<TypeParam>(),
         .to_type = dtype<TypeParam>()});
    for (std::size_t i = 0; i < input.size(); ++i)
      ASSERT_TRUE(same(found[i], expected[i])) << "element " << i << " of " << value_of(input[i]);
  }
}

template <typename From, typename To>
void expect_converts() {
  const std::vector<From> input = values<From>();
  const auto elements = static_cast<std::int64_t>(input.size());
  std::vector<To> expected(input.size());
  convert_reals(internal::bytes_of(input.data()), dtype<From>(), elements,
                internal::bytes_of(expected.data()), dtype<To>());
  std::vector<To> found(input.size());
  run({.from = internal::bytes_of(input.data()),
       .to = internal::bytes_of(found.data()),
       .elements = elements,
       .from_type = dtype<From>(),
       .to_type = dtype<To>()});
  for (std::size_t i = 0; i < input.size(); ++i)
    ASSERT_TRUE(same(found[i], expected[i])) << "element " << i << " of " << value_of(input[i]);
}

TEST(Conversions, AreThoseOfTheCpu) {
  expect_converts<float, F16>();
  expect_converts<float, BF16>();
  expect_converts<double, F16>();
  expect_converts<double, BF16>();
  expect_converts<F16, float>();
  expect_converts<BF16, float>();
  expect_converts<F16, double>();
  expect_converts<BF16, double>();
}

TEST(Conversions, ScaleInTheWiderType) {
  const float input = 65504.0F * 4;  // overflows as f16 before it is scaled
  F16 output{};
  run({.from = internal::bytes_of(&input),
       .to = internal::bytes_of(&output),
       .elements = 1,
       .scaling = {1, 0.25},
       .from_type = DType::f32,
       .to_type = DType::f16});
  EXPECT_EQ(value_of(output), 65504.0);
}

TEST(Booleans, BecomeZeroOrOne) {
  const std::vector<std::uint8_t> input{0, 1, 2, 128, 255};
  std::vector<std::uint8_t> output(input.size(), 9);
  run({.from = internal::bytes_of(input.data()),
       .to = internal::bytes_of(output.data()),
       .elements = 5,
       .from_type = DType::boolean,
       .to_type = DType::boolean});
  EXPECT_EQ(output, (std::vector<std::uint8_t>{0, 1, 1, 1, 1}));
}

TEST(Tables, TilesCoverEverySegmentInTurn) {
  std::vector<Segment> segments;
  for (const std::int64_t elements : {1, 8192, 8193, 20000, 5})
    segments.push_back({.elements = elements, .from_type = DType::f32, .to_type = DType::f16});
  segments.push_back({.elements = 32769});
  // Tiles of f32 have 8192 elements, of bytes 32768.
  const TransferTable table = make_table(segments);
  EXPECT_EQ(table.tiles, 1 + 1 + 2 + 3 + 1 + 2);
  ASSERT_EQ(table.count, 6);
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < 6; ++i) first.push_back(table.segments[i].first_tile);
  EXPECT_EQ(first, (std::vector<std::int64_t>{0, 1, 2, 4, 7, 8}));
}

TEST(Tables, TakeTheFirstSegmentsAsManyAsFit) {
  std::vector<Segment> segments(TransferTable::max_count + 1);
  for (std::size_t i = 0; i < segments.size(); ++i)
    segments[i].elements = static_cast<std::int64_t>(i + 1);
  const TransferTable table = make_table(segments);
  EXPECT_EQ(table.count, std::ssize(segments) - 1);
  EXPECT_EQ(table.segments.back().elements, std::ssize(segments) - 1);
}

}  // namespace
}  // namespace kolo::internal::backend::gpu
