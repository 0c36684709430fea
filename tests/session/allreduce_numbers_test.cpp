// SPDX-License-Identifier: Apache-2.0
// Results of allreduce for numbers that are scaled, compressed, too large, or NaN.
#include <cmath>
#include <cstring>
#include <limits>

#include "../support/world.hpp"
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class AllreduceNumbers : public WithSession {
 protected:
  template <typename T>
  [[nodiscard]] static T reduced(T value, const AllreduceOptions& options) {
    std::vector<T> tensor(3, value);
    allreduce(view_of<T>(tensor), options);
    EXPECT_EQ(std::memcmp(tensor.data(), tensor.data() + 2, sizeof(T)), 0);
    return tensor[1];
  }
};

template <typename T>
class AllreduceScalesReals : public WithSession {};
TYPED_TEST_SUITE(AllreduceScalesReals, Reals);

TYPED_TEST(AllreduceScalesReals, BeforeAndAfter) {
  std::vector<TypeParam> tensor(10, make<TypeParam>(this->me_ + 1));
  allreduce(view_of<TypeParam>(tensor), {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 4.0});
  EXPECT_THAT(values_of(tensor), Each(2.0 * (this->rank_sum_ + this->n_)));
  tensor.assign(10, make<TypeParam>(this->me_ + 1));
  allreduce(view_of<TypeParam>(tensor), {.op = ReduceOp::max, .prescale = -1.0, .postscale = 8.0});
  EXPECT_THAT(values_of(tensor), Each(-8.0));
}

template <typename T>
class AllreduceScalesIntegers : public WithSession {};
TYPED_TEST_SUITE(AllreduceScalesIntegers, Integers);

TYPED_TEST(AllreduceScalesIntegers, InDoubleAndTruncates) {
  // (2r + 1) / 2 becomes r.
  std::vector<TypeParam> tensor(5, static_cast<TypeParam>(2 * this->me_ + 1));
  allreduce(tensor, {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 1.75});
  EXPECT_THAT(values_of(tensor), Each(std::trunc(1.75 * this->rank_sum_)));
  // An average is truncated before it is scaled: (4n + n - 1) / n becomes 4.
  tensor.assign(5, static_cast<TypeParam>(this->me_ == 0 ? 5 * this->n_ - 1 : 0));
  allreduce(tensor, {.postscale = 2.0});
  EXPECT_THAT(values_of(tensor), Each(8.0));
}

TYPED_TEST(AllreduceScalesIntegers, AveragesDoNotOverflow) {
  using Limits = std::numeric_limits<TypeParam>;
  // Sums of 64-bit integers wrap around.
  const auto divisor = static_cast<TypeParam>(sizeof(TypeParam) == 8 ? 64 : 1);
  const auto highest = static_cast<TypeParam>(Limits::max() / divisor);
  const auto lowest = static_cast<TypeParam>(Limits::min() / divisor);
  for (const std::size_t elements : {1U, 33U, 70000U}) {
    std::vector<TypeParam> high(elements, highest);
    std::vector<TypeParam> low(elements, lowest);
    std::vector<TypeParam> near(elements, highest);
    if (this->me_ == 0)
      near.assign(elements, static_cast<TypeParam>(highest - static_cast<TypeParam>(this->n_)));
    grouped_allreduce({high, low});
    allreduce(near);
    EXPECT_THAT(high, Each(highest));
    EXPECT_THAT(low, Each(lowest));
    EXPECT_THAT(near, Each(static_cast<TypeParam>(highest - 1)));
    const std::vector<TypeParam> input(elements, highest);
    std::vector<TypeParam> output(static_cast<std::size_t>(
        reducescatter_rows(static_cast<std::int64_t>(elements), this->me_, this->n_)));
    reducescatter(input, output);
    EXPECT_THAT(output, Each(highest));
  }
  // A scaled average beyond the range becomes the nearest number in range.
  std::vector<TypeParam> scaled(5, Limits::max());
  if (sizeof(TypeParam) < 8) {
    allreduce(scaled, {.postscale = 3.0});
    EXPECT_THAT(scaled, Each(Limits::max()));
  }
}

template <typename T>
class AllreduceTruncates : public WithSession {};
TYPED_TEST_SUITE(AllreduceTruncates, SignedIntegers);

TYPED_TEST(AllreduceTruncates, TowardZeroAlsoBelowIt) {
  for (const int sign : {-1, 1}) {
    std::vector<TypeParam> tensor(
        5, static_cast<TypeParam>(this->me_ == 0 ? sign * (2 * this->n_ + this->last_) : 0));
    allreduce(tensor);  // 2 and (n - 1) / n
    EXPECT_THAT(values_of(tensor), Each(2.0 * sign));
    tensor.assign(5, static_cast<TypeParam>(sign * (2 * this->me_ + 1)));
    allreduce(tensor, {.op = ReduceOp::sum, .prescale = 0.5});
    EXPECT_THAT(values_of(tensor), Each(sign * this->rank_sum_));
  }
}

TEST_F(AllreduceNumbers, OneHalfTypeIsComputedInF32AndRoundedOnce) {
  // 57344 = 7 * 2^13 fits f16, and n times that does not.
  EXPECT_EQ(value_of(reduced(make<F16>(57344), {})), 57344.0);
  EXPECT_EQ(value_of(reduced(make<F16>(57344), {.op = ReduceOp::sum})),
            n_ == 1 ? 57344.0 : infinity);
  EXPECT_EQ(value_of(reduced(make<F16>(57344), {.op = ReduceOp::sum, .postscale = 0.125})),
            7168.0 * n_);
  // The ones would be lost beside 256 in bf16.
  const BF16 value = make<BF16>(me_ == 0 ? 256 : 1);
  EXPECT_EQ(value_of(reduced(value, {.op = ReduceOp::sum})), value_of(make<BF16>(256 + last_)));
}

TEST_F(AllreduceNumbers, IntegersWrapAsTheirTypeDoes) {
  EXPECT_EQ(reduced(std::int8_t{100}, {.op = ReduceOp::sum}), static_cast<std::int8_t>(100 * n_));
  EXPECT_EQ(reduced(std::uint8_t{200}, {.op = ReduceOp::sum}), static_cast<std::uint8_t>(200 * n_));
  EXPECT_EQ(reduced(std::uint16_t{65535}, {.op = ReduceOp::sum}), static_cast<std::uint16_t>(-n_));
  EXPECT_EQ(reduced(std::numeric_limits<std::int32_t>::max(), {.op = ReduceOp::sum}),
            static_cast<std::int32_t>(std::int64_t{n_} * std::numeric_limits<std::int32_t>::max()));
  EXPECT_EQ(reduced(std::numeric_limits<std::int64_t>::min(), {.op = ReduceOp::sum}),
            n_ % 2 == 0 ? 0 : std::numeric_limits<std::int64_t>::min());
  std::uint8_t power = 1;
  for (int i = 0; i < n_; ++i) power = static_cast<std::uint8_t>(power * 7);
  EXPECT_EQ(reduced(std::uint8_t{7}, {.op = ReduceOp::product}), power);
}

TEST_F(AllreduceNumbers, LargeIntegersAreExact) {
  const std::uint64_t top = std::numeric_limits<std::uint64_t>::max();
  const auto mine = static_cast<std::uint64_t>(me_);
  const auto all = static_cast<std::uint64_t>(n_);
  EXPECT_EQ(reduced(top - mine, {.op = ReduceOp::max}), top);
  EXPECT_EQ(reduced(top - mine, {.op = ReduceOp::min}), top - (all - 1));
  EXPECT_EQ(reduced(top / 8 - mine, {.op = ReduceOp::sum}),
            all * (top / 8) - static_cast<std::uint64_t>(rank_sum_));
  // Four of these add up to nearly 2^64, and are doubles.
  const std::uint64_t quarter = (std::uint64_t{1} << 62U) - (std::uint64_t{1} << 40U);
  EXPECT_EQ(reduced(quarter, {}), quarter);
  // Not a double: an average of i64 is divided in 64 bits.
  const std::int64_t odd = (std::int64_t{1} << 60U) + 1;
  EXPECT_EQ(reduced(odd, {}), odd);
  EXPECT_EQ(reduced(-odd, {}), -odd);
}

TEST_F(AllreduceNumbers, ANanOnAnyRankGivesNan) {
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product, ReduceOp::adasum}) {
    for (int bad = 0; bad < n_; ++bad) {
      EXPECT_TRUE(std::isnan(reduced(me_ == bad ? nan : 1.0, {.op = op}))) << static_cast<int>(op);
      EXPECT_TRUE(std::isnan(reduced(static_cast<float>(me_ == bad ? nan : 1.0), {.op = op})));
      EXPECT_TRUE(std::isnan(value_of(reduced(make<F16>(me_ == bad ? nan : 1.0), {.op = op}))));
      EXPECT_TRUE(std::isnan(value_of(reduced(make<BF16>(me_ == bad ? nan : 1.0), {.op = op}))));
      for (const Compression wire : {Compression::fp16, Compression::bf16})
        EXPECT_TRUE(std::isnan(reduced(me_ == bad ? nan : 1.0, {.op = op, .compression = wire})));
    }
  }
}

TEST_F(AllreduceNumbers, ANanSpoilsNoOtherElement) {
  std::vector<float> tensor(100, 1.0F);
  if (me_ == last_) tensor[37] = static_cast<float>(nan);
  allreduce(tensor, {.op = ReduceOp::sum});
  EXPECT_TRUE(std::isnan(tensor[37]));
  tensor[37] = static_cast<float>(n_);
  EXPECT_THAT(tensor, Each(static_cast<float>(n_)));
}

TEST_F(AllreduceNumbers, InfinitiesFollowTheRules) {
  const double one = me_ == last_ ? infinity : 1.0;
  EXPECT_EQ(reduced(one, {.op = ReduceOp::sum}), infinity);
  EXPECT_EQ(reduced(one, {}), infinity);
  EXPECT_EQ(reduced(-one, {.op = ReduceOp::min}), -infinity);
  EXPECT_EQ(reduced(one, {.op = ReduceOp::max}), infinity);
  EXPECT_EQ(reduced(one, {.op = ReduceOp::max, .compression = Compression::fp16}), infinity);
  if (n_ == 1) return;
  EXPECT_EQ(reduced(one, {.op = ReduceOp::min}), 1.0);
  EXPECT_TRUE(std::isnan(reduced(me_ == 0 ? -infinity : one, {.op = ReduceOp::sum})));
}

TEST_F(AllreduceNumbers, CompressedValuesThatFitAreExact) {
  for (const Compression wire : {Compression::fp16, Compression::bf16}) {
    const AllreduceOptions options{.op = ReduceOp::sum, .compression = wire};
    EXPECT_EQ(reduced(static_cast<float>(me_ + 1), options), static_cast<float>(rank_sum_ + n_));
    EXPECT_EQ(reduced(me_ + 1.0, options), rank_sum_ + n_);
    EXPECT_EQ(reduced(2.0, {.op = ReduceOp::product, .compression = wire}), std::pow(2.0, n_));
    EXPECT_EQ(reduced(2.0 * me_, {.op = ReduceOp::max, .compression = wire}), 2.0 * last_);
    EXPECT_EQ(reduced(8.0, {.prescale = 0.5, .postscale = 4.0, .compression = wire}), 16.0);
  }
}

TEST_F(AllreduceNumbers, CompressedValuesTravelInTwoBytes) {
  // Values that do not fit into 10 and 7 bits of mantissa, or into 5 bits of exponent.
  const AllreduceOptions fp16{.op = ReduceOp::sum, .compression = Compression::fp16};
  const AllreduceOptions bf16{.op = ReduceOp::sum, .compression = Compression::bf16};
  EXPECT_EQ(reduced(1.0F + 1.0F / 4096, fp16), static_cast<float>(n_));
  EXPECT_EQ(reduced(1.0 + 1.0 / 1024, bf16), n_);
  EXPECT_EQ(reduced(1e6F, fp16), static_cast<float>(infinity));
  EXPECT_EQ(reduced(std::ldexp(1.0, 100), bf16), std::ldexp(n_, 100));
}

TEST_F(AllreduceNumbers, IntegersAndHalfTypesTravelAsTheyAre) {
  for (const Compression wire : {Compression::fp16, Compression::bf16}) {
    const AllreduceOptions options{.op = ReduceOp::sum, .compression = wire};
    EXPECT_EQ(reduced(std::int64_t{100'000'007}, options), n_ * std::int64_t{100'000'007});
    EXPECT_EQ(reduced(std::uint16_t{4099}, options), 4099 * n_);
    EXPECT_EQ(value_of(reduced(make<F16>(1.0 + 1.0 / 1024), {.compression = wire})),
              1.0 + 1.0 / 1024);
    EXPECT_EQ(value_of(reduced(make<BF16>(std::ldexp(1.0, 100)), {.compression = wire})),
              std::ldexp(1.0, 100));
  }
}

TEST_F(AllreduceNumbers, CompressionLeavesTheInputOfAnOutOfPlaceOne) {
  const std::vector<float> input(100, 1.0F + 1.0F / 4096);
  std::vector<float> output(100);
  allreduce(input, output, {.op = ReduceOp::sum, .compression = Compression::fp16});
  EXPECT_THAT(input, Each(1.0F + 1.0F / 4096));
  EXPECT_THAT(output, Each(static_cast<float>(n_)));
}

}  // namespace
}  // namespace kolo::internal
