// SPDX-License-Identifier: Apache-2.0
// allgather: the concatenation of the tensors of all ranks.
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::ElementsAreArray;

template <typename T>
class AllgatherOf : public WithSession {};
TYPED_TEST_SUITE(AllgatherOf, AllTypes);

TYPED_TEST(AllgatherOf, EveryTypeWithAsManyRowsAsItsRank) {
  const std::vector<Stored<TypeParam>> input(static_cast<std::size_t>(this->me_),
                                             make<Stored<TypeParam>>(this->me_ % 2 + 1));
  std::vector<Stored<TypeParam>> output;
  const std::vector<std::int64_t> rows =
      allgather(view_of<TypeParam>(input), [&](std::span<const std::int64_t> counts) -> void* {
        output.resize(static_cast<std::size_t>(std::reduce(counts.begin(), counts.end())));
        return output.data();
      });
  ASSERT_EQ(output.size(), static_cast<std::size_t>(this->rank_sum_));
  std::size_t next = 0;
  for (int rank = 0; rank < this->n_; ++rank) {
    EXPECT_EQ(rows[static_cast<std::size_t>(rank)], rank);
    for (int i = 0; i < rank; ++i) EXPECT_EQ(value_of(output[next++]), rank % 2 + 1);
  }
}

using Allgather = WithSession;

TEST_F(Allgather, OfRangesOfAnyLength) {
  for (int longest = 0; longest < n_; ++longest) {
    const int length = me_ == longest ? 100'000 : me_ % 2;
    const std::vector<std::int32_t> input(static_cast<std::size_t>(length), me_);
    const Gathered<std::int32_t> gathered = allgather(input);
    std::vector<std::int32_t> expected;
    for (int rank = 0; rank < n_; ++rank) {
      const int count = rank == longest ? 100'000 : rank % 2;
      EXPECT_EQ(gathered.counts[static_cast<std::size_t>(rank)], count);
      expected.insert(expected.end(), static_cast<std::size_t>(count), rank);
    }
    EXPECT_EQ(gathered.values, expected);
  }
}

TEST_F(Allgather, OfTemporaries) {
  std::vector<int> expected(static_cast<std::size_t>(n_));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(allgather(std::vector{me_}).values, expected);
  EXPECT_EQ(alltoall(std::vector<int>(static_cast<std::size_t>(n_), me_)).values, expected);
  const std::vector<int> ones(static_cast<std::size_t>(n_), 1);
  EXPECT_EQ(alltoall(std::vector<int>(static_cast<std::size_t>(n_), me_), ones).values, expected);
  EXPECT_EQ(
      reducescatter(std::vector<int>(static_cast<std::size_t>(n_), me_), {.op = ReduceOp::sum}),
      std::vector{rank_sum_});
}

TEST_F(Allgather, OfNothingAtAll) {
  const std::vector<double> none;
  const Gathered<double> gathered = allgather(none);
  EXPECT_TRUE(gathered.values.empty());
  EXPECT_THAT(gathered.counts, Each(0));
  EXPECT_EQ(gathered.counts.size(), static_cast<std::size_t>(n_));
}

TEST_F(Allgather, AScalarIsOneRow) {
  const std::int64_t mine = 10 * me_;
  std::vector<std::int64_t> all(static_cast<std::size_t>(n_));
  const auto rows = allgather(mine, [&](std::span<const std::int64_t>) { return all.data(); });
  EXPECT_THAT(rows, Each(1));
  for (int rank = 0; rank < n_; ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], 10 * rank);
}

TEST_F(Allgather, AScalarGoesTogetherWithRows) {
  const std::vector<std::int64_t> mine(3, me_);
  std::vector<std::int64_t> all(static_cast<std::size_t>(3 * n_ - 2));
  const ConstTensorView view = me_ == 0 ? ConstTensorView(mine.front()) : ConstTensorView(mine);
  const auto rows = allgather(view, [&](std::span<const std::int64_t>) { return all.data(); });
  EXPECT_EQ(rows.front(), 1);
  EXPECT_EQ(all.front(), 0);
  EXPECT_EQ(all.back(), last_);
}

TEST_F(Allgather, OfMatricesTellsTheAllocatorTheRows) {
  const std::vector<float> mine(static_cast<std::size_t>(6 * (me_ + 1)), static_cast<float>(me_));
  std::vector<float> all;
  std::vector<std::int64_t> told;
  const auto rows = allgather(ConstTensorView(mine.data(), {me_ + 1, 2, 3}),
                              [&](std::span<const std::int64_t> counts) -> void* {
                                told.assign(counts.begin(), counts.end());
                                all.resize(static_cast<std::size_t>(6 * (rank_sum_ + n_)));
                                return all.data();
                              });
  EXPECT_EQ(rows, told);
  std::vector<float> expected;
  for (int rank = 0; rank < n_; ++rank) {
    EXPECT_EQ(rows[static_cast<std::size_t>(rank)], rank + 1);
    expected.insert(expected.end(), static_cast<std::size_t>(6 * (rank + 1)),
                    static_cast<float>(rank));
  }
  EXPECT_EQ(all, expected);
}

TEST_F(Allgather, OfTexts) {
  const std::string mine(static_cast<std::size_t>(me_) * 1000, static_cast<char>('a' + me_));
  const std::vector<std::string> texts = allgather(mine);
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(n_));
  for (int rank = 0; rank < n_; ++rank)
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)],
              std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank)));
  const std::string with_zero("a\0b", 3);
  EXPECT_THAT(allgather(with_zero, {.name = "zeros"}), Each(with_zero));
}

TEST_F(Allgather, OfBooleansGivesBytes) {
  const std::array<bool, 2> mine{true, me_ == 0};
  const Gathered<bool> gathered = allgather(mine);
  for (int rank = 0; rank < n_; ++rank) {
    EXPECT_EQ(gathered.values[2 * static_cast<std::size_t>(rank)], 1);
    EXPECT_EQ(gathered.values[2 * static_cast<std::size_t>(rank) + 1], rank == 0 ? 1 : 0);
  }
}

TEST_F(Allgather, Asynchronously) {
  std::vector<std::vector<std::int16_t>> inputs;
  std::vector<Future<Gathered<std::int16_t>>> futures;
  for (int i = 0; i < 10; ++i)
    inputs.emplace_back(static_cast<std::size_t>(i * me_), static_cast<std::int16_t>(i));
  for (int k = 0; k < 10; ++k) {
    const int i = me_ % 2 == 0 ? k : 9 - k;
    futures.push_back(
        allgather_async(inputs[static_cast<std::size_t>(i)], {.name = std::to_string(i)}));
  }
  for (int k = 0; k < 10; ++k) {
    const int i = me_ % 2 == 0 ? k : 9 - k;
    const Gathered<std::int16_t> gathered = futures[static_cast<std::size_t>(k)].get();
    EXPECT_EQ(gathered.values, std::vector<std::int16_t>(static_cast<std::size_t>(i * rank_sum_),
                                                         static_cast<std::int16_t>(i)));
  }
}

TEST_F(Allgather, Grouped) {
  const std::vector<std::vector<std::int32_t>> mine{
      std::vector<std::int32_t>(2, me_), {}, std::vector<std::int32_t>(1, -me_)};
  const std::vector<Gathered<std::int32_t>> gathered =
      grouped_allgather(std::span(mine), {.name = "group"});
  ASSERT_EQ(gathered.size(), 3U);
  EXPECT_THAT(gathered[0].counts, Each(2));
  EXPECT_THAT(gathered[1].counts, Each(0));
  for (int rank = 0; rank < n_; ++rank) {
    EXPECT_EQ(gathered[0].values[2 * static_cast<std::size_t>(rank)], rank);
    EXPECT_EQ(gathered[2].values[static_cast<std::size_t>(rank)], -rank);
  }
}

TEST_F(Allgather, GroupedAndMixed) {
  const std::vector<float> floats(4, static_cast<float>(me_));
  const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(me_), 7);
  std::vector<float> all_floats(static_cast<std::size_t>(4 * n_));
  std::vector<std::uint8_t> all_bytes(static_cast<std::size_t>(rank_sum_));
  const std::vector<ConstTensorView> tensors{ConstTensorView(floats.data(), {2, 2}), bytes};
  const std::vector<Allocator> allocators{
      [&](std::span<const std::int64_t>) { return all_floats.data(); },
      [&](std::span<const std::int64_t>) { return all_bytes.data(); }};
  const auto rows = grouped_allgather_async(tensors, allocators).get();
  EXPECT_THAT(rows[0], Each(2));
  for (int rank = 0; rank < n_; ++rank) {
    EXPECT_EQ(rows[1][static_cast<std::size_t>(rank)], rank);
    EXPECT_EQ(all_floats[4 * static_cast<std::size_t>(rank) + 3], static_cast<float>(rank));
  }
  EXPECT_THAT(all_bytes, Each(7));
}

TEST_F(Allgather, WhatCannotBeGatheredIsRefused) {
  const std::vector<float> mine(2);
  EXPECT_THROW(allgather(ConstTensorView(mine), nullptr, {.name = "x"}), InvalidArgument);
  const std::vector<ConstTensorView> tensors{mine};
  EXPECT_THROW(grouped_allgather(tensors, {}, {.name = "x"}), InvalidArgument);
  EXPECT_THROW(grouped_allgather(std::span<const ConstTensorView>(), {}, {.name = "x"}),
               InvalidArgument);
  EXPECT_EQ(allgather(mine, {.name = "x"}).values.size(), static_cast<std::size_t>(2 * n_));
}

TEST_F(Allgather, EveryDimensionButTheFirstMustMatch) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  const std::vector<float> mine(12);
  const Shape shape = me_ == 0 ? Shape{2, 3, 2} : Shape{4, 3, 1};
  bool allocated = false;
  const auto allocate = [&](std::span<const std::int64_t>) -> void* {
    allocated = true;
    return nullptr;
  };
  const auto error = thrown_by<Mismatch>(
      [&] { allgather(ConstTensorView(mine.data(), shape), allocate, {.name = "columns"}); });
  EXPECT_EQ(error.tensor(), "columns");
  EXPECT_EQ(error.ranks(), ranks());
  EXPECT_THAT(error.what(), testing::HasSubstr("3, 2] on rank 0"));
  EXPECT_THAT(error.what(), testing::HasSubstr("3, 1] on rank"));
  EXPECT_FALSE(allocated);
  const Shape dimensions = me_ == 0 ? Shape{12} : Shape{12, 1};
  EXPECT_THROW(allgather(ConstTensorView(mine.data(), dimensions), allocate, {.name = "columns"}),
               Mismatch);
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
