// SPDX-License-Identifier: Apache-2.0
// The vectors compute the same bits as the scalar code.
#include "reduction/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "../support/elements.hpp"
#include "../support/instruction_sets.hpp"

namespace kolo::internal::reduction {
namespace {

constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product};
constexpr unsigned seed = 20;
/// Bytes after the output that detect writes beyond its end.
constexpr std::size_t margin = 64;

using Bytes = std::vector<std::byte>;

/// Elements one byte off any alignment.
template <typename T>
class Odd {
 public:
  explicit Odd(std::size_t elements) : bytes_(1 + elements * sizeof(T) + margin) {}

  [[nodiscard]] std::byte* data() { return bytes_.data() + 1; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data() + 1; }
  [[nodiscard]] T at(std::size_t i) const { return load<T>(data(), static_cast<std::int64_t>(i)); }
  void set(std::size_t i, T value) { store(data(), static_cast<std::int64_t>(i), value); }
  /// Whether the bytes after so many elements are as they were made.
  [[nodiscard]] bool ends_after(std::size_t elements) const {
    const auto rest = bytes_.begin() + static_cast<std::ptrdiff_t>(1 + elements * sizeof(T));
    return std::all_of(rest, bytes_.end(), [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  Bytes bytes_;
};

template <typename T>
std::vector<T> special_values() {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    return {T{0}, T{1}, Limits::min(), Limits::max(), static_cast<T>(-1)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {{0x0000}, {0x8000}, {0x0001}, {0x83FF}, {0x0400}, {0x3C00}, {0xBC00},
            {0x7BFF}, {0xFBFF}, {0x7C00}, {0xFC00}, {0x7E00}, {0xFE01}, {0x7C01}};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return {{0x0000}, {0x8000}, {0x0001}, {0x807F}, {0x0080}, {0x3F80}, {0xBF80},
            {0x7F7F}, {0xFF7F}, {0x7F80}, {0xFF80}, {0x7FC0}, {0xFFC1}, {0x7F81}};
  } else {
    using Limits = std::numeric_limits<T>;
    return {T{0},
            -T{0},
            Limits::denorm_min(),
            -Limits::denorm_min(),
            Limits::min(),
            -Limits::min(),
            T{1},
            T{-1},
            Limits::max(),
            Limits::lowest(),
            Limits::infinity(),
            -Limits::infinity(),
            Limits::quiet_NaN(),
            -Limits::quiet_NaN(),
            Limits::signaling_NaN()};
  }
}

/// Small numbers, special values and any bits.
template <typename T>
T any_element(std::mt19937& random) {
  static const std::vector<T> special = special_values<T>();
  const auto kind = random() % 4;
  if (kind == 0) return special[random() % special.size()];
  if (kind == 1) {
    const std::uint64_t bits = std::uint64_t{random()} << 32U | random();
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  return make<T>(static_cast<double>(random() % 1000) / 100.0 + 0.1);
}

template <typename T>
Odd<T> any_elements(std::size_t elements, std::mt19937& random) {
  Odd<T> made(elements);
  for (std::size_t i = 0; i < elements; ++i) made.set(i, any_element<T>(random));
  return made;
}

/// Bits, except that of two NaNs C++ does not say which one an addition or a multiplication keeps.
template <typename T>
bool same(T a, T b, bool exact) {
  if constexpr (!std::is_integral_v<T>) {
    if (!exact && std::isnan(value_of(a)) && std::isnan(value_of(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T, typename Result>
void expect_as_scalar(Arithmetic arithmetic, const std::vector<Odd<T>>& inputs,
                      std::size_t elements) {
  arithmetic.dtype = dtype<T>();
  if (!std::is_same_v<T, Result>) arithmetic.result = dtype<Result>();
  std::vector<const std::byte*> addresses;
  for (const Odd<T>& input : inputs) addresses.push_back(input.data());
  const auto length = static_cast<std::int64_t>(elements);
  Odd<Result> expected(elements);
  reduce_scalar(arithmetic, addresses, length, expected.data());
  Odd<Result> result(elements);
  reduce(arithmetic, addresses, length, result.data());
  const bool compares = arithmetic.op == ReduceOp::min || arithmetic.op == ReduceOp::max;
  for (std::size_t i = 0; i < elements; ++i)
    ASSERT_TRUE(same(result.at(i), expected.at(i), compares || inputs.size() == 1))
        << "element " << i << " of " << elements << ", " << inputs.size() << " inputs, operation "
        << static_cast<int>(arithmetic.op) << ", prescale " << arithmetic.prescale << ", postscale "
        << arithmetic.postscale << ", divisor " << arithmetic.divisor << ", seed " << seed << ": "
        << value_of(result.at(i)) << " instead of " << value_of(expected.at(i));
  ASSERT_TRUE(result.ends_after(elements)) << elements;
}

/// Scalings of reductions. The vector code handles integers only without prescale and postscale.
template <typename T>
const std::vector<Arithmetic>& scalings() {
  static const std::vector<Arithmetic> integer{{}, {.divisor = 3}};
  static const std::vector<Arithmetic> real{
      {},
      {.divisor = 2},
      {.divisor = 3},
      {.prescale = 0.3},
      {.postscale = 1.7},
      {.prescale = 1.0 / 3.0, .postscale = 0.1, .divisor = 3},
  };
  return std::is_integral_v<T> ? integer : real;
}

template <typename T>
std::vector<Odd<T>> any_inputs(std::size_t inputs, std::size_t elements, std::mt19937& random) {
  std::vector<Odd<T>> made;
  for (std::size_t i = 0; i < inputs; ++i) made.push_back(any_elements<T>(elements, random));
  return made;
}

/// Then it is a copy, which keeps more of a NaN than the scalar code.
template <typename T, typename Result>
bool changes_nothing(const Arithmetic& arithmetic, std::size_t inputs) {
  return std::is_same_v<T, Result> && inputs == 1 && arithmetic.prescale == 1.0 &&
         arithmetic.postscale == 1.0 && arithmetic.divisor == 1;
}

template <typename T, typename Result = T>
void expect_every_combination(const std::vector<std::size_t>& lengths) {
  std::mt19937 random(seed);
  for (const std::size_t elements : lengths) {
    for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
      const auto data = any_inputs<T>(inputs, elements, random);
      for (const ReduceOp op : ops) {
        for (Arithmetic arithmetic : scalings<T>()) {
          arithmetic.op = op;
          if (changes_nothing<T, Result>(arithmetic, inputs)) continue;
          expect_as_scalar<T, Result>(arithmetic, data, elements);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

template <typename T>
class ReduceVectors : public testing::Test {};
TYPED_TEST_SUITE(ReduceVectors, Numbers);

TYPED_TEST(ReduceVectors, AreTheScalarCodeForAnyLength) {
  // Vectors have 16 to 64 bytes, and four of them are taken at once.
  std::vector<std::size_t> lengths{1, 3};
  for (const std::size_t vectors : {8U, 16U, 32U, 64U, 128U, 256U})
    for (const std::size_t length : {vectors - 1, vectors, vectors + 1}) lengths.push_back(length);
  lengths.push_back(600);
  for_each_instruction_set([&] { expect_every_combination<TypeParam>(lengths); });
}

TYPED_TEST(ReduceVectors, MayWriteOverAnyInput) {
  std::mt19937 random(seed);
  for_each_instruction_set([&] {
    for (std::size_t inputs = 1; inputs <= 4; ++inputs) {
      for (std::size_t target = 0; target < inputs; ++target) {
        auto data = any_inputs<TypeParam>(inputs, 777, random);
        std::vector<const std::byte*> addresses;
        for (const auto& input : data) addresses.push_back(input.data());
        const Arithmetic arithmetic{
            .op = ReduceOp::max, .dtype = dtype<TypeParam>(), .prescale = inputs == 1 ? 2.0 : 1.0};
        Odd<TypeParam> expected(777);
        reduce_scalar(arithmetic, addresses, 777, expected.data());
        reduce(arithmetic, addresses, 777, data[target].data());
        for (std::size_t i = 0; i < 777; ++i)
          ASSERT_TRUE(same(data[target].at(i), expected.at(i), true)) << i << ", seed " << seed;
      }
    }
  });
}

template <typename T>
class ReduceRealVectors : public testing::Test {};
TYPED_TEST_SUITE(ReduceRealVectors, Reals);

TYPED_TEST(ReduceRealVectors, CombineEverySpecialValueWithEveryOther) {
  const std::vector<TypeParam> values = special_values<TypeParam>();
  const std::size_t elements = values.size() * values.size();
  std::vector<Odd<TypeParam>> inputs(2, Odd<TypeParam>(elements));
  for (std::size_t i = 0; i < elements; ++i) {
    inputs[0].set(i, values[i % values.size()]);
    inputs[1].set(i, values[i / values.size()]);
  }
  for_each_instruction_set([&] {
    for (const ReduceOp op : ops) {
      for (Arithmetic arithmetic : scalings<TypeParam>()) {
        arithmetic.op = op;
        expect_as_scalar<TypeParam, TypeParam>(arithmetic, inputs, elements);
      }
    }
  });
}

TYPED_TEST(ReduceRealVectors, KnowEveryOperationWhereTheMachineHasVectors) {
  const auto doubled = [](ReduceOp op, std::optional<DType> result) {
    const std::vector<TypeParam> input(1);
    std::vector<double> output(1);
    const std::byte* const inputs[] = {bytes_of(input.data()), bytes_of(input.data())};
    return reduce_vectors({.op = op, .dtype = dtype<TypeParam>(), .result = result}, inputs, 1,
                          bytes_of(output.data()));
  };
  chosen_target().update(supported_targets());
  if (!(supported_targets() & (HWY_AVX2 | HWY_NEON))) GTEST_SKIP() << "no vectors here";
  for (const ReduceOp op : ops) EXPECT_TRUE(doubled(op, {})) << static_cast<int>(op);
  EXPECT_TRUE(!is_half_type<TypeParam> || doubled(ReduceOp::average, DType::f32));
}

template <typename T>
class ReduceHalfVectors : public testing::Test {};
using Halves = testing::Types<F16, BF16>;
TYPED_TEST_SUITE(ReduceHalfVectors, Halves);

TYPED_TEST(ReduceHalfVectors, TakeEveryHalf) {
  constexpr std::size_t every = 1U << 16U;
  std::mt19937 random(seed);
  std::vector<std::uint16_t> shuffled(every);
  std::iota(shuffled.begin(), shuffled.end(), std::uint16_t{0});
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  std::vector<Odd<TypeParam>> inputs(2, Odd<TypeParam>(every));
  for (std::size_t i = 0; i < every; ++i) {
    inputs[0].set(i, {static_cast<std::uint16_t>(i)});
    inputs[1].set(i, {shuffled[i]});
  }
  const std::vector<Odd<TypeParam>> one{inputs[0]};
  for_each_instruction_set([&] {
    for (const ReduceOp op : ops) {
      expect_as_scalar<TypeParam, TypeParam>({.op = op}, inputs, every);
      expect_as_scalar<TypeParam, TypeParam>({.op = op, .postscale = 0.7}, one, every);
      expect_as_scalar<TypeParam, float>({.op = op}, inputs, every);
    }
    expect_as_scalar<TypeParam, float>({}, one, every);
    expect_as_scalar<TypeParam, double>({}, one, every);
  });
}

TYPED_TEST(ReduceHalfVectors, WidenAsTheScalarCodeForAnyLength) {
  for_each_instruction_set([] {
    expect_every_combination<TypeParam, float>({1, 7, 31, 32, 33, 64, 65, 200});
    expect_every_combination<TypeParam, double>({1, 7, 31, 32, 33, 64, 65, 200});
  });
}

}  // namespace
}  // namespace kolo::internal::reduction
