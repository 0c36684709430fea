// SPDX-License-Identifier: Apache-2.0
// allreduce of every type with every operator.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/world.hpp"
#include "fixture.hpp"

namespace kolo::internal {
namespace {

template <typename T>
class AllreduceOf : public WithSession {
 protected:
  static constexpr int elements = 41;

  // From 1 to 3, so that a product fits into every type; of both signs where there are two.
  static Stored<T> input(int rank, int i) {
    const int magnitude = 1 + (rank + i) % 3;
    if constexpr (std::is_same_v<T, bool>) return magnitude > 1 ? 1 : 0;
    return make<Stored<T>>(!std::is_unsigned_v<T> && i % 2 == 1 ? -magnitude : magnitude);
  }

  static std::vector<Stored<T>> inputs(int rank) {
    std::vector<Stored<T>> all;
    for (int i = 0; i < elements; ++i) all.push_back(input(rank, i));
    return all;
  }

  static double combine(ReduceOp op, double a, double b) {
    switch (op) {
      case ReduceOp::min: return std::min(a, b);
      case ReduceOp::max: return std::max(a, b);
      case ReduceOp::product: return a * b;
      default: return a + b;
    }
  }

  [[nodiscard]] std::vector<double> expected(ReduceOp op) const {
    std::vector<double> all;
    for (int i = 0; i < elements; ++i) {
      double result = value_of(input(0, i));
      for (int rank = 1; rank < n_; ++rank) result = combine(op, result, value_of(input(rank, i)));
      if (op == ReduceOp::average) result /= n_;
      all.push_back(value_of(make<Stored<T>>(result)));  // an integer is truncated
    }
    return all;
  }

  static bool has_meaning(ReduceOp op) {
    return !std::is_same_v<T, bool> || (op != ReduceOp::sum && op != ReduceOp::average);
  }
};

TYPED_TEST_SUITE(AllreduceOf, AllTypes);

constexpr std::array elementwise{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                                 ReduceOp::product};

TYPED_TEST(AllreduceOf, EveryOperatorInPlace) {
  for (const ReduceOp op : elementwise) {
    if (!this->has_meaning(op)) continue;
    auto tensor = this->inputs(this->me_);
    allreduce(view_of<TypeParam>(tensor), {.op = op});
    EXPECT_EQ(values_of(tensor), this->expected(op)) << static_cast<int>(op);
  }
}

TYPED_TEST(AllreduceOf, OutOfPlaceLeavesTheInput) {
  for (const ReduceOp op : elementwise) {
    if (!this->has_meaning(op)) continue;
    const auto input = this->inputs(this->me_);
    std::vector<Stored<TypeParam>> output(input.size());
    allreduce(view_of<TypeParam>(input), view_of<TypeParam>(output), {.op = op});
    EXPECT_EQ(values_of(output), this->expected(op)) << static_cast<int>(op);
    EXPECT_EQ(values_of(input), values_of(this->inputs(this->me_)));
  }
}

TYPED_TEST(AllreduceOf, AnOperatorWithoutMeaningIsRefused) {
  constexpr bool boolean = std::is_same_v<TypeParam, bool>;
  constexpr bool real = is_half_type<TypeParam> || std::is_floating_point_v<TypeParam>;
  auto tensor = this->inputs(this->me_);
  std::vector<ReduceOp> meaningless;
  if (boolean) meaningless = {ReduceOp::sum, ReduceOp::average};
  if (!real) meaningless.push_back(ReduceOp::adasum);
  for (const ReduceOp op : meaningless) {
    const auto error = thrown_by<InvalidArgument>(
        [&] { allreduce(view_of<TypeParam>(tensor), {.name = "refused", .op = op}); });
    EXPECT_EQ(error.tensor(), "refused");
    EXPECT_EQ(error.ranks(), std::vector{this->me_});
  }
  EXPECT_EQ(values_of(tensor), values_of(this->inputs(this->me_)));
  this->expect_usable();
}

using Allreduce = WithSession;

TEST_F(Allreduce, AveragesUnlessToldOtherwise) {
  std::vector<float> tensor(1000, static_cast<float>(me_));
  allreduce(tensor);
  EXPECT_THAT(tensor, testing::Each(static_cast<float>(rank_sum_) / static_cast<float>(n_)));
}

TEST_F(Allreduce, OfScalars) {
  std::int64_t integer = 100 + me_;
  allreduce(integer, {.op = ReduceOp::sum});
  EXPECT_EQ(integer, 100 * n_ + rank_sum_);
  const double input = me_ + 0.5;
  double output = -1.0;
  allreduce(input, output, {.op = ReduceOp::max});
  EXPECT_EQ(output, last_ + 0.5);
  EXPECT_EQ(input, me_ + 0.5);
}

TEST_F(Allreduce, OfNoElements) {
  std::vector<float> none;
  allreduce(none, {.name = "none"});
  allreduce(TensorView(static_cast<double*>(nullptr), {3, 0, 5}), {.op = ReduceOp::adasum});
  allreduce(ConstTensorView(none), none, {.op = ReduceOp::product, .prescale = 3.0});
  EXPECT_TRUE(none.empty());
  expect_usable();
}

TEST_F(Allreduce, OfMatricesOfAnyNumberOfDimensions) {
  std::vector<std::int32_t> elements(2 * 3 * 5 * 1);
  std::iota(elements.begin(), elements.end(), me_);
  allreduce(TensorView(elements.data(), {2, 3, 5, 1}), {.op = ReduceOp::sum});
  for (std::size_t i = 0; i < elements.size(); ++i)
    EXPECT_EQ(elements[i], rank_sum_ + n_ * static_cast<int>(i));
}

// Lengths about the sizes at which an implementation may cut, align or copy differently.
TEST_F(Allreduce, OfAnyLength) {
  for (const std::size_t around : {1U, 16U, 64U, 1024U, 4096U, 65536U, 1U << 20U}) {
    for (const std::size_t elements : {around - 1, around, around + 1}) {
      std::vector<std::uint16_t> tensor(elements);
      for (std::size_t i = 0; i < elements; ++i)
        tensor[i] = static_cast<std::uint16_t>(i % 1000 + static_cast<std::size_t>(me_));
      allreduce(tensor, {.op = ReduceOp::sum});
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < elements; ++i)
        wrong += tensor[i] !=
                 static_cast<std::size_t>(n_) * (i % 1000) + static_cast<std::size_t>(rank_sum_);
      EXPECT_EQ(wrong, 0U) << elements;
    }
  }
}

TEST_F(Allreduce, IsTheSameBitsOnEveryRank) {
  std::vector<float> tensor(10'000);
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = 1.0F / static_cast<float>(i + static_cast<std::size_t>(me_) + 1);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::adasum}) {
    allreduce(tensor, {.op = op});
    std::vector<float> first = tensor;
    broadcast(first, 0);
    EXPECT_EQ(first, tensor);
  }
}

using LongAllreduce = WithSession;

// With few tags (see CMakeLists.txt) later operations wait where they have those of the long one.
TEST_F(LongAllreduce, AnOperationMayOutlastManyOthers) {
  const ProcessSet all = add_process_set(ranks());
  const ProcessSet alone = add_process_set({0});
  std::vector<std::uint8_t> large(std::size_t{32} << 20, 1);
  Future<void> done = allreduce_async(large, {.op = ReduceOp::sum, .process_set = all});
  for (std::int64_t i = 0; i < 60; ++i) {
    // Operations of one rank number the batches of all.
    std::int64_t own = i;
    if (me_ == 0 && i % 3 == 0) allreduce(own, {.op = ReduceOp::sum, .process_set = alone});
    EXPECT_EQ(own, i);
    std::vector<std::int64_t> values(i % 2 == 0 ? 1 : 100'000, i);
    allreduce(values, {.op = ReduceOp::sum});
    ASSERT_EQ(std::count(values.begin(), values.end(), i * n_), std::ssize(values));
  }
  done.get();
  EXPECT_EQ(std::count(large.begin(), large.end(), static_cast<std::uint8_t>(n_)),
            std::ssize(large));
}

}  // namespace
}  // namespace kolo::internal
