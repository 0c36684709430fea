// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "elements.hpp"

namespace perf {
namespace {

using kolo::DType;
using kolo::ReduceOp;

constexpr int sizes[] = {1, 2, 3, 4, 7, 8, 64, 100, 127};
constexpr std::int64_t length = 5000;  // elements

std::vector<std::byte> filled(const PeriodicTable& table, DType dtype, std::int64_t phase) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(length * size_of(dtype)));
  table.fill(buffer, phase);
  return buffer;
}

PeriodicTable sums(DType dtype, int size) {
  return {dtype, reduced_values(dtype, ReduceOp::sum, ReduceOp::sum, size)};
}

TEST(Elements, HalfTypesAreEncodedAsKoloReadsThem) {
  for (std::int64_t value = 0; value <= exact_limit(DType::f16); ++value) {
    kolo::internal::F16 half{};
    encode(DType::f16, value, reinterpret_cast<std::byte*>(&half));
    EXPECT_EQ(to_float(half), static_cast<float>(value));
  }
  for (std::int64_t value = 0; value <= exact_limit(DType::bf16); ++value) {
    kolo::internal::BF16 half{};
    encode(DType::bf16, value, reinterpret_cast<std::byte*>(&half));
    EXPECT_EQ(to_float(half), static_cast<float>(value));
  }
}

TEST(Elements, OthersAreEncodedByValue) {
  double real = 0.0;
  encode(DType::f64, 3, reinterpret_cast<std::byte*>(&real));
  EXPECT_EQ(real, 3.0);
  std::int16_t integer = 0;
  encode(DType::i16, 300, reinterpret_cast<std::byte*>(&integer));
  EXPECT_EQ(integer, 300);
}

TEST(Pattern, EveryInputAndResultIsExact) {
  for (const auto& [dtype, dtype_name] : dtype_names)
    for (const auto& [op, op_name] : reduce_op_names)
      for (const int size : sizes) {
        const bool summed = op == ReduceOp::sum || op == ReduceOp::average;
        if (dtype == DType::boolean && summed) continue;
        SCOPED_TRACE(std::string(dtype_name) + " " + std::string(op_name) + " " +
                     std::to_string(size));
        const ReduceOp largest = op == ReduceOp::average ? ReduceOp::sum : op;
        for (const std::int64_t value : reduced_values(dtype, largest, op, size)) {
          EXPECT_GE(value, 0);
          EXPECT_LE(value, exact_limit(dtype));
        }
        for (const std::int64_t value : input_values(dtype, op, size - 1, size)) {
          EXPECT_GE(value, 0);
          EXPECT_LE(value, exact_limit(dtype));
        }
      }
}

TEST(Pattern, SumsOfManyRanksStayExact) {
  for (const DType dtype : {DType::i8, DType::bf16})
    for (const int size : {256, 300, 1000})
      for (const std::int64_t value : reduced_values(dtype, ReduceOp::sum, ReduceOp::sum, size))
        EXPECT_LE(value, exact_limit(dtype));
}

TEST(Pattern, AveragesAreWhole) {
  for (const int size : sizes) {
    const auto sum = reduced_values(DType::f32, ReduceOp::sum, ReduceOp::average, size);
    const auto average = reduced_values(DType::f32, ReduceOp::average, ReduceOp::average, size);
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], average[i] * size);
  }
}

TEST(Pattern, InputsDependOnTheRank) {
  for (const auto& [op, op_name] : reduce_op_names)
    EXPECT_NE(input_values(DType::f32, op, 0, 4), input_values(DType::f32, op, 1, 4)) << op_name;
}

TEST(Pattern, WhatWasFilledIsRight) {
  for (const auto& [dtype, name] : dtype_names) {
    const PeriodicTable table(dtype, input_values(dtype, ReduceOp::max, 2, 4));
    for (const std::int64_t phase : {0, 1, 508, 509, 123456})
      EXPECT_EQ(table.count_wrong(filled(table, dtype, phase), phase), 0) << name;
  }
}

TEST(Pattern, APhaseIsAnOffset) {
  const PeriodicTable table(DType::i32, input_values(DType::i32, ReduceOp::max, 0, 2));
  const auto whole = filled(table, DType::i32, 17);
  EXPECT_EQ(table.count_wrong(std::span(whole).subspan(4 * 1000), 17 + 1000), 0);
}

TEST(Pattern, ASingleCorruptedElementIsCounted) {
  for (const auto& [dtype, name] : dtype_names) {
    const PeriodicTable table(dtype, input_values(dtype, ReduceOp::max, 0, 4));
    for (const std::int64_t index : {std::int64_t{0}, std::int64_t{2500}, length - 1}) {
      auto buffer = filled(table, dtype, 3);
      buffer[static_cast<std::size_t>(index * size_of(dtype))] ^= std::byte{1};
      EXPECT_EQ(table.count_wrong(buffer, 3), 1) << name << " at " << index;
    }
  }
}

TEST(Pattern, AnElementThatWasNeverWrittenIsWrong) {
  for (const auto& [dtype, name] : dtype_names) {
    const PeriodicTable table(dtype, input_values(dtype, ReduceOp::max, 0, 4));
    auto buffer = filled(table, dtype, 3);
    spoil(std::span(buffer).last(static_cast<std::size_t>(10 * size_of(dtype))));
    EXPECT_EQ(table.count_wrong(buffer, 3), 10) << name;
  }
}

TEST(Pattern, AMissingRankIsSeen) {
  for (const int size : {2, 3, 4}) {
    auto values = reduced_values(DType::f32, ReduceOp::sum, ReduceOp::sum, size);
    const auto last = input_values(DType::f32, ReduceOp::sum, size - 1, size);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= last[i];
    const PeriodicTable without(DType::f32, values);
    EXPECT_GT(sums(DType::f32, size).count_wrong(filled(without, DType::f32, 0), 0), length / 2);
  }
}

TEST(Pattern, TheInputIsNotTheResult) {
  const PeriodicTable input(DType::f32, input_values(DType::f32, ReduceOp::sum, 0, 2));
  EXPECT_GT(sums(DType::f32, 2).count_wrong(filled(input, DType::f32, 0), 0), length / 2);
}

TEST(Pattern, AnEarlierIterationIsSeen) {
  const PeriodicTable table = sums(DType::bf16, 4);
  EXPECT_GT(table.count_wrong(filled(table, DType::bf16, 97), 2 * 97), length / 2);
}

TEST(Pattern, PiecesThatWereExchangedAreSeen) {
  const PeriodicTable table = sums(DType::u8, 2);
  auto buffer = filled(table, DType::u8, 0);
  std::swap_ranges(buffer.begin(), buffer.begin() + 1024, buffer.begin() + 2048);
  EXPECT_GT(table.count_wrong(buffer, 0), 1024);
}

TEST(Pattern, WhatCannotBeVerifiedIsRefused) {
  EXPECT_THROW(check_exactness(DType::boolean, ReduceOp::sum, 2), UsageError);
  EXPECT_THROW(check_exactness(DType::boolean, ReduceOp::average, 2), UsageError);
  EXPECT_NO_THROW(check_exactness(DType::boolean, ReduceOp::max, 2));
  EXPECT_NO_THROW(check_exactness(DType::i8, ReduceOp::average, 127));
  EXPECT_THROW(check_exactness(DType::i8, ReduceOp::average, 128), UsageError);
  EXPECT_NO_THROW(check_exactness(DType::i8, ReduceOp::sum, 1000));
}

}  // namespace
}  // namespace perf
