// SPDX-License-Identifier: Apache-2.0
#include "reduction/reduce.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../support/elements.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::reduction {
namespace {

using testing::Each;
using testing::ElementsAre;

// Below, at and above the block.
constexpr std::size_t some_lengths[] = {0, 1, 7, 1023, 1024, 1025, 5000};

/// 1 or 2, so that the product of five fits every type.
std::int64_t element(std::size_t input, std::size_t k) {
  return 1 + static_cast<std::int64_t>((k + input * k / 3 + input) % 2);
}

std::int64_t combined(ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::product: return a * b;
    default: return a + b;
  }
}

std::int64_t expected(ReduceOp op, std::size_t inputs, std::size_t k) {
  std::int64_t result = element(0, k);
  for (std::size_t i = 1; i < inputs; ++i) result = combined(op, result, element(i, k));
  return result;
}

template <typename T>
using Vectors = std::vector<std::vector<T>>;

template <typename T>
Vectors<T> make_inputs(std::size_t inputs, std::size_t length) {
  Vectors<T> made(inputs);
  for (std::size_t i = 0; i < inputs; ++i)
    for (std::size_t k = 0; k < length; ++k) made[i].push_back(make<T>(element(i, k)));
  return made;
}

template <typename T>
std::vector<const std::byte*> addresses(const Vectors<T>& inputs) {
  std::vector<const std::byte*> result;
  for (const std::vector<T>& input : inputs) result.push_back(bytes_of(input.data()));
  return result;
}

template <typename T, typename Result = T>
std::vector<double> reduced(Arithmetic arithmetic, const Vectors<T>& inputs) {
  arithmetic.dtype = dtype<T>();
  if (!std::is_same_v<T, Result>) arithmetic.result = dtype<Result>();
  std::vector<Result> output(inputs.front().size());
  reduce(arithmetic, addresses(inputs), static_cast<std::int64_t>(output.size()),
         bytes_of(output.data()));
  std::vector<double> values;
  for (const Result value : output) values.push_back(value_of(value));
  return values;
}

/// One element per input.
template <typename T>
double reduced_values(const Arithmetic& arithmetic, const std::vector<double>& values) {
  Vectors<T> inputs;
  for (const double value : values) inputs.push_back({make<T>(value)});
  return reduced<T>(arithmetic, inputs).front();
}

template <typename T>
class ReduceNumbers : public testing::Test {};
TYPED_TEST_SUITE(ReduceNumbers, Numbers);
template <typename T>
class ReduceIntegers : public testing::Test {};
TYPED_TEST_SUITE(ReduceIntegers, Integers);
template <typename T>
class ReduceSigned : public testing::Test {};
TYPED_TEST_SUITE(ReduceSigned, SignedIntegers);
template <typename T>
class ReduceReals : public testing::Test {};
TYPED_TEST_SUITE(ReduceReals, Reals);

TYPED_TEST(ReduceNumbers, EveryOperationOfAnyNumberOfInputs) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
      for (const std::size_t length : some_lengths) {
        const auto result = reduced<TypeParam>({.op = op}, make_inputs<TypeParam>(inputs, length));
        for (std::size_t k = 0; k < length; ++k)
          ASSERT_EQ(result[k], static_cast<double>(expected(op, inputs, k)))
              << "operation " << static_cast<int>(op) << ", element " << k << " of " << length;
      }
    }
  }
}

TYPED_TEST(ReduceNumbers, SeveralOutputsThatAreTheInputs) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    for (const std::size_t length : some_lengths) {
      for (const std::size_t outputs : {1U, 2U, 4U}) {
        Vectors<TypeParam> data = make_inputs<TypeParam>(4, length);
        std::vector<std::byte*> places;
        for (std::size_t i = 4 - outputs; i < 4; ++i) places.push_back(bytes_of(data[i].data()));
        reduce({.op = op, .dtype = dtype<TypeParam>()}, addresses(data),
               static_cast<std::int64_t>(length), places);
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t k = 0; k < length; ++k)
            ASSERT_EQ(value_of(data[i][k]),
                      static_cast<double>(i < 4 - outputs ? element(i, k) : expected(op, 4, k)))
                << "element " << k << " of " << length << " of input " << i;
      }
    }
  }
}

TYPED_TEST(ReduceNumbers, ScalesBeforeAndAfterAndDivides) {
  const Arithmetic arithmetic{
      .op = ReduceOp::average, .prescale = 4.0, .postscale = 3.0, .divisor = 2};
  EXPECT_EQ(reduced_values<TypeParam>(arithmetic, {1, 2, 3}), 36);
  EXPECT_EQ(reduced_values<TypeParam>({.op = ReduceOp::min, .prescale = 2.0}, {5, 3, 4}), 6);
  EXPECT_EQ(reduced_values<TypeParam>({.op = ReduceOp::max, .postscale = 2.0}, {5, 3, 4}), 10);
}

TYPED_TEST(ReduceNumbers, TheAverageOfEqualValuesIsThatValue) {
  for (std::size_t ranks = 1; ranks <= 64; ++ranks) {
    const Arithmetic arithmetic{.op = ReduceOp::average,
                                .divisor = static_cast<std::int64_t>(ranks)};
    EXPECT_EQ(reduced_values<TypeParam>(arithmetic, std::vector<double>(ranks, 1)), 1) << ranks;
  }
}

TYPED_TEST(ReduceNumbers, TheOutputMayBeAnyInput) {
  for (const double prescale : {1.0, 2.0}) {
    for (std::size_t inputs = 1; inputs <= 4; ++inputs) {
      for (std::size_t target = 0; target < inputs; ++target) {
        auto vectors = make_inputs<TypeParam>(inputs, 3000);
        const Arithmetic arithmetic{.dtype = dtype<TypeParam>(), .prescale = prescale};
        reduce(arithmetic, addresses(vectors), 3000, bytes_of(vectors[target].data()));
        for (std::size_t k = 0; k < 3000; ++k)
          ASSERT_EQ(value_of(vectors[target][k]),
                    prescale * static_cast<double>(expected(ReduceOp::sum, inputs, k)));
        for (std::size_t other = 0; other < inputs; ++other) {
          if (other == target) continue;
          ASSERT_EQ(value_of(vectors[other][7]), static_cast<double>(element(other, 7)));
        }
      }
    }
  }
}

TYPED_TEST(ReduceNumbers, TakesMemoryAtAnyAddress) {
  constexpr std::size_t size = sizeof(TypeParam);
  constexpr std::size_t length = 1500;
  std::vector<std::byte> odd((2 * length) * size + 1);
  for (std::size_t k = 0; k < 2 * length; ++k) {
    const auto value = make<TypeParam>(1 + k % 5);
    std::memcpy(odd.data() + 1 + k * size, &value, size);
  }
  const std::byte* const inputs[] = {odd.data() + 1, odd.data() + 1 + length * size};
  reduce({.dtype = dtype<TypeParam>()}, inputs, length, odd.data() + 1);
  for (std::size_t k = 0; k < length; ++k) {
    TypeParam result;
    std::memcpy(&result, odd.data() + 1 + k * size, size);
    ASSERT_EQ(value_of(result), static_cast<double>(2 * (1 + k % 5))) << k;
  }
}

TYPED_TEST(ReduceNumbers, NoElementsTouchNothing) {
  const std::byte* const inputs[] = {nullptr, nullptr};
  reduce({.dtype = dtype<TypeParam>()}, inputs, 0, nullptr);
}

TYPED_TEST(ReduceNumbers, NothingToDoChangesNoBit) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bits(1000 * sizeof(TypeParam));
  for (std::byte& byte : bits) byte = static_cast<std::byte>(random());
  std::vector<std::byte> output(bits.size());
  const std::byte* const inputs[] = {bits.data()};
  reduce({.dtype = dtype<TypeParam>()}, inputs, 1000, output.data());
  EXPECT_EQ(output, bits);
}

TYPED_TEST(ReduceIntegers, SumsAndProductsWrap) {
  using T = TypeParam;
  const T largest = std::numeric_limits<T>::max();
  const Vectors<T> inputs(3, std::vector<T>(2000, largest));
  std::vector<T> output(2000);
  const auto wide = static_cast<std::uint64_t>(largest);
  reduce({.dtype = dtype<T>()}, addresses(inputs), 2000, bytes_of(output.data()));
  EXPECT_THAT(output, Each(static_cast<T>(wide + wide + wide)));
  reduce({.op = ReduceOp::product, .dtype = dtype<T>()}, addresses(inputs), 2000,
         bytes_of(output.data()));
  EXPECT_THAT(output, Each(static_cast<T>(wide * wide * wide)));
}

TYPED_TEST(ReduceIntegers, AveragesAndScalesAreTruncated) {
  const auto average = [](const std::vector<double>& values, double postscale) {
    const Arithmetic arithmetic{.op = ReduceOp::average,
                                .postscale = postscale,
                                .divisor = static_cast<std::int64_t>(values.size())};
    return reduced_values<TypeParam>(arithmetic, values);
  };
  EXPECT_EQ(average({1, 1, 3}, 1.0), 1);
  EXPECT_EQ(average({2, 2, 2}, 1.0), 2);
  EXPECT_EQ(average({2, 3}, 1.5), 3);  // 2 times 1.5
  EXPECT_EQ(average({3, 4}, 1.5), 4);
  EXPECT_EQ(reduced_values<TypeParam>({.prescale = 0.5}, {3, 5, 7}), 1 + 2 + 3);
}

TYPED_TEST(ReduceSigned, AveragesAndScalesAreTruncatedTowardZero) {
  const Arithmetic third{.op = ReduceOp::average, .divisor = 3};
  EXPECT_EQ(reduced_values<TypeParam>(third, {-1, -1, -3}), -1);
  EXPECT_EQ(reduced_values<TypeParam>(third, {-1, -1, 0}), 0);
  EXPECT_EQ(reduced_values<TypeParam>({.prescale = 0.5}, {-3, -5}), -3);
  EXPECT_EQ(reduced_values<TypeParam>({.postscale = 1.5}, {-3, 0}), -4);
}

TYPED_TEST(ReduceIntegers, ScalesStopAtTheLimitsOfTheType) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  const auto scaled = [](T value, double scale) {
    const std::byte* const inputs[] = {bytes_of(&value)};
    T output{};
    reduce({.dtype = dtype<T>(), .prescale = scale}, inputs, 1, bytes_of(&output));
    return output;
  };
  EXPECT_EQ(scaled(Limits::max(), 2.0), Limits::max());
  EXPECT_EQ(scaled(Limits::min(), 2.0), Limits::min());
  EXPECT_EQ(scaled(1, -1e300), Limits::min());
  EXPECT_EQ(scaled(1, std::nan("")), 0);
}

TYPED_TEST(ReduceReals, ANaNInAnyInputGivesNaN) {
  const double nan = std::nan("");
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<double> values{1, 2, 0};
      values[place] = nan;
      EXPECT_TRUE(std::isnan(reduced_values<TypeParam>({.op = op, .divisor = 3}, values)))
          << "operation " << static_cast<int>(op) << ", input " << place;
    }
  }
}

TYPED_TEST(ReduceReals, InfinitiesPass) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(reduced_values<TypeParam>({.op = ReduceOp::min}, {1, -infinity}), -infinity);
  EXPECT_EQ(reduced_values<TypeParam>({.op = ReduceOp::max}, {infinity, 1}), infinity);
  EXPECT_EQ(reduced_values<TypeParam>({.op = ReduceOp::min}, {infinity, 1}), 1);
  EXPECT_TRUE(std::isnan(reduced_values<TypeParam>({}, {infinity, -infinity})));
}

TEST(Reduce, CombinesInTheOrderOfTheInputs) {
  EXPECT_EQ(reduced_values<float>({}, {1e8, 1, -1e8}), 0.0);
  EXPECT_EQ(reduced_values<float>({}, {1e8, -1e8, 1}), 1.0);
}

TEST(Reduce, ADivisionIsRoundedOnce) {
  std::mt19937 random(1);
  Vectors<float> inputs(2);
  for (std::size_t k = 0; k < 1000; ++k) {
    inputs[0].push_back(static_cast<float>(random()) / 3e9F);
    inputs[1].push_back(static_cast<float>(random()) / 3e9F - 0.7F);
  }
  for (const std::int64_t divisor : {2, 3, 5, 7, 49, 1000}) {
    const auto result = reduced<float>({.op = ReduceOp::average, .divisor = divisor}, inputs);
    for (std::size_t k = 0; k < 1000; ++k) {
      const float sum = inputs[0][k] + inputs[1][k];
      ASSERT_EQ(static_cast<float>(result[k]), sum / static_cast<float>(divisor)) << k;
    }
  }
}

TEST(Reduce, DivisorAndPostscaleAreOneFactor) {
  const Arithmetic arithmetic{.op = ReduceOp::average, .postscale = 0.3, .divisor = 3};
  EXPECT_EQ(reduced_values<double>(arithmetic, {7, 4}), 11.0 * (0.3 / 3.0));
}

TEST(Reduce, HalvesAreComputedInF32AndRoundedOnce) {
  // In f16, 2048 + 1 is 2048 again, however often.
  EXPECT_EQ(reduced_values<F16>({}, {2048, 1, 1}), 2050.0);
  EXPECT_EQ(reduced_values<F16>({.op = ReduceOp::average, .divisor = 3}, {2048, 1}), 683.0);
  EXPECT_EQ(reduced_values<BF16>({}, {256, 1, 1}), 258.0);
}

TEST(Reduce, HalvesMayGiveAnF32OrF64) {
  const Vectors<F16> f16{{make<F16>(2048)}, {make<F16>(1)}};
  EXPECT_THAT((reduced<F16, float>({}, f16)), ElementsAre(2049.0));
  EXPECT_THAT((reduced<F16, double>({}, f16)), ElementsAre(2049.0));
  const Vectors<BF16> bf16{{make<BF16>(256)}, {make<BF16>(1)}};
  EXPECT_THAT((reduced<BF16, float>({.postscale = 2.0}, bf16)), ElementsAre(514.0));
}

TEST(Reduce, BooleansHaveAndAndOr) {
  const std::vector<std::vector<std::uint8_t>> inputs{{0, 0, 1, 1, 0xFF}, {0, 1, 0, 1, 2}};
  std::vector<std::uint8_t> output(5);
  const auto reduced_by = [&](ReduceOp op) {
    reduce({.op = op, .dtype = DType::boolean}, addresses(inputs), 5, bytes_of(output.data()));
    return output;
  };
  EXPECT_THAT(reduced_by(ReduceOp::min), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(reduced_by(ReduceOp::product), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(reduced_by(ReduceOp::max), ElementsAre(0, 1, 1, 1, 1));
}

TEST(Reduce, RefusesWhatHasNoMeaning) {
  bool flag = true;
  const std::byte* const inputs[] = {bytes_of(&flag)};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::adasum})
    EXPECT_THROW(reduce({.op = op, .dtype = DType::boolean}, inputs, 1, bytes_of(&flag)),
                 InvalidArgument);
  EXPECT_THROW(check_arithmetic(ReduceOp::adasum, DType::i32), InvalidArgument);
  check_arithmetic(ReduceOp::adasum, DType::bf16);
  check_arithmetic(ReduceOp::min, DType::boolean);
}

}  // namespace
}  // namespace kolo::internal::reduction
