// SPDX-License-Identifier: Apache-2.0
// reducescatter: each rank gets some rows of the result.
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

template <typename T>
class ReducescatterOf : public WithSession {};
TYPED_TEST_SUITE(ReducescatterOf, AllTypes);

TYPED_TEST(ReducescatterOf, EveryType) {
  constexpr bool boolean = std::is_same_v<TypeParam, bool>;
  // Uneven: all but the last get 3 rows.
  const int rows = 3 * this->n_ - 1;
  std::vector<Stored<TypeParam>> input;
  for (int i = 0; i < rows; ++i) input.push_back(make<Stored<TypeParam>>(boolean ? i % 2 : 1 + i));
  std::vector<Stored<TypeParam>> output(
      static_cast<std::size_t>(reducescatter_rows(rows, this->me_, this->n_)));
  reducescatter(view_of<TypeParam>(input), view_of<TypeParam>(output),
                {.op = boolean ? ReduceOp::min : ReduceOp::sum});
  for (std::size_t i = 0; i < output.size(); ++i) {
    const int row = 3 * this->me_ + static_cast<int>(i);
    EXPECT_EQ(value_of(output[i]), boolean ? row % 2 : (1 + row) * this->n_);
  }
}

class Reducescatter : public WithSession {
 protected:
  /// The first row of the rank, of so many.
  [[nodiscard]] std::int64_t first_row(std::int64_t rows) const {
    std::int64_t first = 0;
    for (int index = 0; index < me_; ++index) first += reducescatter_rows(rows, index, n_);
    return first;
  }
};

TEST_F(Reducescatter, SharesAnyNumberOfRows) {
  for (int rows = 0; rows <= 2 * n_ + 1; ++rows) {
    std::vector<double> input;
    for (int i = 0; i < rows; ++i) input.push_back(i * (me_ + 1));
    const std::vector<double> output = reducescatter(input, {.op = ReduceOp::sum});
    ASSERT_EQ(output.size(), static_cast<std::size_t>(rows / n_ + (me_ < rows % n_ ? 1 : 0)));
    for (std::size_t i = 0; i < output.size(); ++i)
      EXPECT_EQ(output[i],
                (static_cast<double>(first_row(rows)) + static_cast<double>(i)) * (rank_sum_ + n_));
  }
}

TEST_F(Reducescatter, AveragesUnlessToldOtherwise) {
  const std::vector<float> input(static_cast<std::size_t>(4 * n_), static_cast<float>(me_));
  EXPECT_THAT(reducescatter(input), Each(static_cast<float>(rank_sum_) / static_cast<float>(n_)));
}

TEST_F(Reducescatter, HasMinMaxAndProduct) {
  const std::vector<std::int32_t> input(static_cast<std::size_t>(2 * n_), me_ + 1);
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::min}), Each(1));
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::max}), Each(n_));
  int factorial = 1;
  for (int i = 2; i <= n_; ++i) factorial *= i;
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::product}), Each(factorial));
}

TEST_F(Reducescatter, OfMatricesGoesByRows) {
  const int rows = 2 * n_ + 1;
  std::vector<std::int64_t> input;
  for (int i = 0; i < rows * 6; ++i) input.push_back(i + me_);
  const std::int64_t own = reducescatter_rows(rows, me_, n_);
  std::vector<std::int64_t> output(static_cast<std::size_t>(own * 6));
  reducescatter(ConstTensorView(input.data(), {rows, 2, 3}), TensorView(output.data(), {own, 2, 3}),
                {.op = ReduceOp::sum});
  for (std::size_t i = 0; i < output.size(); ++i)
    EXPECT_EQ(output[i], n_ * (first_row(rows) * 6 + static_cast<std::int64_t>(i)) + rank_sum_);
}

TEST_F(Reducescatter, ScalesAndCompresses) {
  const std::vector<float> input(static_cast<std::size_t>(3 * n_), static_cast<float>(me_ + 1));
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 4.0}),
              Each(2.0F * static_cast<float>(rank_sum_ + n_)));
  EXPECT_THAT(reducescatter(input, {.op = ReduceOp::max, .compression = Compression::bf16}),
              Each(static_cast<float>(n_)));
  const std::vector<double> fine(static_cast<std::size_t>(3 * n_), 1.0 + 1.0 / 4096);
  EXPECT_THAT(reducescatter(fine, {.op = ReduceOp::sum, .compression = Compression::fp16}),
              Each(static_cast<double>(n_)));
}

TEST_F(Reducescatter, Asynchronously) {
  std::vector<std::vector<double>> inputs;
  std::vector<Future<std::vector<double>>> futures;
  for (std::size_t i = 0; i < 10; ++i)
    inputs.emplace_back(i * static_cast<std::size_t>(n_) + 1, static_cast<double>(i));
  for (std::size_t k = 0; k < 10; ++k) {
    const std::size_t i = me_ % 2 == 0 ? k : 9 - k;
    futures.push_back(reducescatter_async(inputs[i], {.name = std::to_string(i)}));
  }
  for (std::size_t k = 0; k < 10; ++k) {
    const std::size_t i = me_ % 2 == 0 ? k : 9 - k;
    const std::vector<double> output = futures[k].get();
    EXPECT_EQ(output.size(), i + (me_ == 0 ? 1 : 0));
    EXPECT_THAT(output, Each(static_cast<double>(i)));
  }
}

TEST_F(Reducescatter, GroupedAndMixed) {
  const std::vector<float> a(static_cast<std::size_t>(n_), static_cast<float>(me_));
  const std::vector<std::int32_t> b(static_cast<std::size_t>(2 * n_), 1);
  std::vector<float> own_a(1);
  std::vector<std::int32_t> own_b(2);
  const std::vector<ConstTensorView> inputs{a, b};
  const std::vector<TensorView> outputs{own_a, own_b};
  grouped_reducescatter(inputs, outputs, {.name = "group", .op = ReduceOp::sum});
  EXPECT_THAT(own_a, Each(static_cast<float>(rank_sum_)));
  EXPECT_THAT(own_b, Each(n_));
  own_b.assign(2, -1);
  grouped_reducescatter_async(inputs, outputs, {.op = ReduceOp::max}).get();
  EXPECT_THAT(own_a, Each(static_cast<float>(last_)));
  EXPECT_THAT(own_b, Each(1));
}

TEST_F(Reducescatter, WhatCannotBeSharedIsRefused) {
  double scalar = 1.0;
  std::vector<double> rows(static_cast<std::size_t>(2 * n_), 1.0);
  std::vector<double> too_few(1);
  std::vector<float> other_type(2);
  std::vector<double> good(2);
  const ReducescatterOptions options{.name = "shared", .op = ReduceOp::sum};
  EXPECT_THROW(reducescatter(scalar, scalar, options), InvalidArgument);
  EXPECT_THROW(reducescatter(rows, too_few, options), InvalidArgument);
  EXPECT_THROW(reducescatter(rows, other_type, options), InvalidArgument);
  EXPECT_THROW(reducescatter(rows, TensorView(static_cast<double*>(nullptr), {2}), options),
               InvalidArgument);
  EXPECT_THROW((void)reducescatter(rows, {.op = ReduceOp::adasum}), InvalidArgument);
  const std::vector<ConstTensorView> inputs{rows};
  EXPECT_THROW(grouped_reducescatter(inputs, {}, options), InvalidArgument);
  EXPECT_THROW(grouped_reducescatter({}, {}, options), InvalidArgument);
  const std::vector<std::uint8_t> flags(static_cast<std::size_t>(n_), 1);
  EXPECT_THROW(
      (void)reducescatter(std::span(reinterpret_cast<const bool*>(flags.data()), flags.size())),
      InvalidArgument);
  reducescatter(rows, good, options);
  EXPECT_THAT(good, Each(static_cast<double>(n_)));
}

}  // namespace
}  // namespace kolo::internal
