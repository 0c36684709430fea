// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace {

// Small integers, so that sums are exact in any order.
double left(std::size_t i, std::size_t k) { return static_cast<double>((3 * i + 5 * k) % 7) - 3.0; }
double right(std::size_t k, std::size_t j) {
  return static_cast<double>((2 * k + 11 * j) % 5) - 2.0;
}

struct Sizes {
  std::size_t rows, terms, columns;
};

class AddProduct : public ::testing::TestWithParam<Sizes> {};

TEST_P(AddProduct, AddsToWhatIsThereAndTouchesNothingBeside) {
  const auto [rows, terms, columns] = GetParam();
  const std::size_t b_step = columns + 2;
  const std::size_t c_step = columns + 3;
  std::vector<double> plain(rows * terms);
  std::vector<double> transposed(rows * terms);
  std::vector<double> b(terms * b_step, 1e9);
  for (std::size_t k = 0; k < terms; ++k) {
    for (std::size_t i = 0; i < rows; ++i)
      plain[i * terms + k] = transposed[k * rows + i] = left(i, k);
    for (std::size_t j = 0; j < columns; ++j) b[k * b_step + j] = right(k, j);
  }
  std::vector<double> c(rows * c_step, 0.5);
  gpt::add_product({plain.data(), terms}, b.data(), b_step, c.data(), c_step, rows, terms, columns);
  gpt::add_product({transposed.data(), 1, rows}, b.data(), b_step, c.data(), c_step, rows, terms,
                   columns);

  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < c_step; ++j) {
      double expected = 0.5;
      for (std::size_t k = 0; j < columns && k < terms; ++k)
        expected += 2.0 * left(i, k) * right(k, j);
      EXPECT_EQ(c[i * c_step + j], expected) << "row " << i << ", column " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AddProduct,
                         ::testing::Values(Sizes{1, 1, 1}, Sizes{4, 3, 8}, Sizes{5, 7, 9},
                                           Sizes{8, 2, 16}, Sizes{3, 10, 7}, Sizes{11, 4, 23}));

TEST(Transpose, OfSomeColumns) {
  const std::vector<float> in = {1, 2, -1, 3, 4, -1, 5, 6, -1};
  std::vector<float> out(6);
  gpt::transpose(in.data(), 3, out.data(), 3, 2);
  EXPECT_EQ(out, (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

}  // namespace
