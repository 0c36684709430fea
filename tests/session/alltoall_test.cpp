// SPDX-License-Identifier: Apache-2.0
// alltoall: every rank sends rows to every rank.
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

template <typename T>
class AlltoallOf : public WithSession {};
TYPED_TEST_SUITE(AlltoallOf, AllTypes);

TYPED_TEST(AlltoallOf, EveryType) {
  const auto n = static_cast<std::size_t>(this->n_);
  std::vector<Stored<TypeParam>> input;
  for (int to = 0; to < this->n_; ++to)
    input.push_back(make<Stored<TypeParam>>((this->me_ + 2 * to) % 2 + 1));
  std::vector<Stored<TypeParam>> output(n);
  const std::vector<std::int64_t> ones(n, 1);
  const auto received = alltoall(view_of<TypeParam>(std::as_const(input)), ones,
                                 [&](std::span<const std::int64_t>) { return output.data(); });
  EXPECT_EQ(received, ones);
  for (int from = 0; from < this->n_; ++from)
    EXPECT_EQ(value_of(output[static_cast<std::size_t>(from)]), from % 2 + 1);
}

class Alltoall : public WithSession {
 protected:
  /// As many rows from each rank to each as `count` says; every element tells both.
  template <typename Count>
  void exchange(Count count) const {
    std::vector<int> counts;
    std::vector<std::int32_t> input;
    std::vector<std::int32_t> expected;
    std::vector<std::int64_t> expected_counts;
    for (int peer = 0; peer < n_; ++peer) {
      counts.push_back(count(me_, peer));
      input.insert(input.end(), static_cast<std::size_t>(count(me_, peer)), 100 * me_ + peer);
      expected_counts.push_back(count(peer, me_));
      expected.insert(expected.end(), static_cast<std::size_t>(count(peer, me_)), 100 * peer + me_);
    }
    const Gathered<std::int32_t> gathered = alltoall(input, counts);
    EXPECT_EQ(gathered.counts, expected_counts);
    EXPECT_EQ(gathered.values, expected);
  }
};

TEST_F(Alltoall, WithAnyCounts) {
  exchange([](int, int) { return 3; });
  exchange([](int from, int) { return from + 1; });
  exchange([](int, int to) { return 1000 * to; });
  exchange([](int from, int to) { return (from * 7 + to * 3) % 5; });
}

TEST_F(Alltoall, WithZeros) {
  exchange([](int, int) { return 0; });
  exchange([](int from, int to) { return from == to ? 0 : 2; });
  exchange([](int from, int to) { return from == to ? 2 : 0; });
  for (int one = 0; one < n_; ++one) {
    exchange([=](int from, int) { return from == one ? 0 : 4; });  // sends nothing
    exchange([=](int, int to) { return to == one ? 0 : 4; });      // receives nothing
    exchange([=](int from, int) { return from == one ? 4 : 0; });
  }
}

TEST_F(Alltoall, InEqualParts) {
  std::vector<double> input;
  for (int i = 0; i < 3 * n_; ++i) input.push_back(100 * me_ + i / 3);
  const Gathered<double> gathered = alltoall(input);
  EXPECT_THAT(gathered.counts, Each(3));
  for (int i = 0; i < 3 * n_; ++i)
    EXPECT_EQ(gathered.values[static_cast<std::size_t>(i)], 100 * (i / 3) + me_);
  const std::vector<double> none;
  EXPECT_THAT(alltoall(none).values, IsEmpty());
}

TEST_F(Alltoall, OfMatricesGoesByRows) {
  // Rank r sends r + 1 rows of two elements to each.
  const std::int64_t rows = me_ + 1;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(n_), rows);
  std::vector<std::int64_t> input;
  for (int to = 0; to < n_; ++to)
    input.insert(input.end(), static_cast<std::size_t>(2 * rows), 10 * me_ + to);
  std::vector<std::int64_t> output(static_cast<std::size_t>(2 * (rank_sum_ + n_)), -1);
  Future<std::vector<std::int64_t>> future =
      alltoall_async(ConstTensorView(input.data(), {n_ * rows, 2, 1}), counts,
                     [&](std::span<const std::int64_t>) { return output.data(); });
  const std::vector<std::int64_t> received = future.get();
  std::vector<std::int64_t> expected;
  for (int from = 0; from < n_; ++from) {
    EXPECT_EQ(received[static_cast<std::size_t>(from)], from + 1);
    expected.insert(expected.end(), static_cast<std::size_t>(2 * (from + 1)), 10 * from + me_);
  }
  EXPECT_EQ(output, expected);
}

TEST_F(Alltoall, Asynchronously) {
  std::vector<std::vector<float>> inputs;
  std::vector<Future<Gathered<float>>> futures;
  for (int i = 0; i < 10; ++i)
    inputs.emplace_back(static_cast<std::size_t>(i * n_), static_cast<float>(100 * i + me_));
  for (int k = 0; k < 10; ++k) {
    const int i = me_ % 2 == 0 ? k : 9 - k;
    futures.push_back(
        alltoall_async(inputs[static_cast<std::size_t>(i)], {.name = std::to_string(i)}));
  }
  for (int k = 0; k < 10; ++k) {
    const int i = me_ % 2 == 0 ? k : 9 - k;
    const Gathered<float> gathered = futures[static_cast<std::size_t>(k)].get();
    for (int j = 0; j < i * n_; ++j)
      EXPECT_EQ(gathered.values[static_cast<std::size_t>(j)], static_cast<float>(100 * i + j / i));
  }
}

TEST_F(Alltoall, WrongCountsAreRefused) {
  const std::vector<float> input(static_cast<std::size_t>(2 * n_), static_cast<float>(me_));
  const auto refuse = [&](const std::vector<int>& counts, const std::string& why) {
    const auto error =
        thrown_by<InvalidArgument>([&] { (void)alltoall(input, counts, {.name = "counted"}); });
    EXPECT_EQ(error.tensor(), "counted");
    EXPECT_EQ(error.ranks(), std::vector{me_});
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  };
  const std::vector<int> good(static_cast<std::size_t>(n_), 2);
  std::vector<int> wrong = good;
  wrong.push_back(0);
  refuse(wrong, "counts for " + std::to_string(n_) + " ranks");
  refuse({}, "0 counts");
  wrong = good;
  wrong.front() = -1;
  refuse(wrong, "-1 is negative");
  wrong.front() = 3;
  refuse(wrong, "add up to " + std::to_string(2 * n_ + 1));
  wrong.front() = 1;
  refuse(wrong, "add up to " + std::to_string(2 * n_ - 1));
  EXPECT_THAT(alltoall(input, good, {.name = "counted"}).counts, Each(2));
}

TEST_F(Alltoall, WhatCannotBeSplitIsRefused) {
  const float scalar = 1.0F;
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(n_), 1);
  const auto nowhere = [](std::span<const std::int64_t>) -> void* { return nullptr; };
  EXPECT_THROW(alltoall(ConstTensorView(scalar), ones, nowhere), InvalidArgument);
  const std::vector<float> rows(static_cast<std::size_t>(n_));
  EXPECT_THROW(alltoall(ConstTensorView(rows), ones, nullptr), InvalidArgument);
  if (n_ > 1) {
    const std::vector<float> odd(static_cast<std::size_t>(n_ + 1));
    EXPECT_THROW((void)alltoall(odd), InvalidArgument);
  }
  expect_usable();
}

TEST_F(Alltoall, EveryDimensionButTheFirstMustMatch) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  const std::vector<float> input(static_cast<std::size_t>(2 * n_));
  const Shape shape = me_ == 0 ? Shape{n_, 2} : Shape{2 * n_, 1};
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(n_), me_ == 0 ? 1 : 2);
  const auto nowhere = [](std::span<const std::int64_t>) -> void* { return nullptr; };
  const auto error = thrown_by<Mismatch>([&] {
    alltoall(ConstTensorView(input.data(), shape), counts, nowhere, {.name = "columns"});
  });
  EXPECT_EQ(error.tensor(), "columns");
  EXPECT_EQ(error.ranks(), ranks());
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
