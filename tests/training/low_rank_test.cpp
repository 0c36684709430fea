// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/low_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace kolo::internal {
namespace {

using testing::Each;
using testing::FloatNear;

using Floats = std::vector<float>;

Floats integers(std::int64_t count, int modulus) {
  Floats values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((7 * static_cast<int>(i) + 3) % modulus - modulus / 2);
  return values;
}

// Integers, so that sums are exact in any order.
TEST(LowRank, Products) {
  for (const std::int64_t columns : {1, 5, 16, 40}) {
    const LowRank shape{.rows = 6, .columns = columns, .rank = 3};
    const Floats matrix = integers(shape.size(), 11);
    const Floats right = integers(shape.right_size(), 5);
    const Floats left = integers(shape.left_size(), 7);
    Floats by_right(left.size());
    Floats by_left(right.size());
    Floats product(matrix.size());
    Floats rest(matrix.size());
    multiply_by_right(shape, matrix.data(), right.data(), by_right.data());
    multiply_by_left(shape, matrix.data(), left.data(), by_left.data());
    expand(shape, left.data(), right.data(), 2.0F, product.data());
    subtract_product(shape, matrix.data(), left.data(), right.data(), rest.data());
    const auto at = [](const Floats& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    for (std::int64_t i = 0; i < shape.rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        float sum = 0.0F;
        for (std::int64_t k = 0; k < 3; ++k)
          sum += at(left, i * 3 + k) * at(right, k * columns + j);
        EXPECT_EQ(at(product, i * columns + j), 2.0F * sum);
        EXPECT_EQ(at(rest, i * columns + j), at(matrix, i * columns + j) - sum);
      }
    for (std::int64_t k = 0; k < 3; ++k) {
      for (std::int64_t i = 0; i < shape.rows; ++i) {
        float sum = 0.0F;
        for (std::int64_t j = 0; j < columns; ++j)
          sum += at(matrix, i * columns + j) * at(right, k * columns + j);
        EXPECT_EQ(at(by_right, i * 3 + k), sum);
      }
      for (std::int64_t j = 0; j < columns; ++j) {
        float sum = 0.0F;
        for (std::int64_t i = 0; i < shape.rows; ++i)
          sum += at(matrix, i * columns + j) * at(left, i * 3 + k);
        EXPECT_EQ(at(by_left, k * columns + j), sum);
      }
    }
  }
}

TEST(LowRank, OrthonormalColumns) {
  constexpr std::int64_t rows = 100;
  for (const float scale : {1e-30F, 1.0F, 1e30F}) {
    Floats matrix(4 * rows);
    fill_pseudo_randomly(1, 4 * rows, matrix.data());
    for (std::size_t i = 0; i < rows; ++i) matrix[4 * i + 2] = matrix[4 * i] - matrix[4 * i + 1];
    for (float& element : matrix) element *= scale;
    orthonormalize_columns(rows, 4, matrix.data());
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b) {
        double product = 0.0;
        for (std::size_t i = 0; i < rows; ++i)
          product += double{matrix[4 * i + a]} * matrix[4 * i + b];
        // The third depends on the first two.
        EXPECT_NEAR(product, a == b && a != 2 ? 1.0 : 0.0, 1e-5) << a << ' ' << b;
      }
  }
}

TEST(LowRank, ZerosStayZeros) {
  Floats matrix(30);
  orthonormalize_rows(3, 10, matrix.data());
  EXPECT_THAT(matrix, Each(0.0F));
}

TEST(LowRank, PseudoRandomNumbers) {
  Floats first(10000);
  Floats second(10000);
  fill_pseudo_randomly(0, 10000, first.data());
  fill_pseudo_randomly(1, 10000, second.data());
  EXPECT_NEAR(std::accumulate(first.begin(), first.end(), 0.0) / 10000.0, 0.0, 0.03);
  EXPECT_NEAR(std::inner_product(first.begin(), first.end(), first.begin(), 0.0) / 10000.0,
              1.0 / 3.0, 0.02);
  EXPECT_NEAR(std::inner_product(first.begin(), first.end(), second.begin(), 0.0) / 10000.0, 0.0,
              0.02);
}

TEST(LowRank, FindsWhatIsNotFinite) {
  Floats values(33, -3e38F);
  EXPECT_TRUE(all_finite(values.data(), 33));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t place : {0U, 17U, 32U}) {
      values[place] = bad;
      EXPECT_FALSE(all_finite(values.data(), 33));
      values[place] = 0.0F;
    }
}

}  // namespace
}  // namespace kolo::internal
