// SPDX-License-Identifier: Apache-2.0
// Several tensors as one operation.
#include <array>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

using GroupedAllreduce = WithSession;

TEST_F(GroupedAllreduce, MixesDtypesAndShapes) {
  for (const bool fuse_exactly : {false, true}) {
    std::vector<float> floats(100, static_cast<float>(me_));
    std::vector<double> doubles(6, 2.0 * me_);
    std::int64_t scalar = me_ + 1;
    std::vector<std::uint8_t> none;
    grouped_allreduce({floats, TensorView(doubles.data(), {2, 3}), scalar, none},
                      {.name = "mixed", .op = ReduceOp::sum, .fuse_exactly = fuse_exactly});
    EXPECT_THAT(floats, Each(static_cast<float>(rank_sum_)));
    EXPECT_THAT(doubles, Each(2.0 * rank_sum_));
    EXPECT_EQ(scalar, rank_sum_ + n_);
  }
}

TEST_F(GroupedAllreduce, TakesAListASpanAndAVector) {
  std::array<std::int32_t, 4> a{};
  std::vector<std::int32_t> b(3);
  const std::vector<TensorView> views{a, b};
  const auto expect = [&](auto&& reduce) {
    a.fill(me_);
    b.assign(3, 10 * me_);
    reduce();
    EXPECT_THAT(a, Each(rank_sum_));
    EXPECT_THAT(b, Each(10 * rank_sum_));
  };
  const GroupedAllreduceOptions sum{.op = ReduceOp::sum};
  expect([&] { grouped_allreduce({a, b}, sum); });
  expect([&] { grouped_allreduce(views, sum); });
  expect([&] { grouped_allreduce(std::span(views), sum); });
  expect([&] { grouped_allreduce_async({a, b}, sum).wait(); });
  expect([&] { grouped_allreduce_async(views, sum).get(); });
}

TEST_F(GroupedAllreduce, OfOneIsAnAllreduce) {
  std::vector<double> tensor(9, me_);
  grouped_allreduce({tensor});
  EXPECT_THAT(tensor, Each(static_cast<double>(rank_sum_) / n_));
}

TEST_F(GroupedAllreduce, OfNoneIsRefused) {
  const auto error = thrown_by<InvalidArgument>(
      [] { grouped_allreduce(std::span<const TensorView>(), {.name = "nobody"}); });
  EXPECT_EQ(error.tensor(), "nobody");
  expect_usable();
}

TEST_F(GroupedAllreduce, TakesEveryOption) {
  std::vector<float> a(5, static_cast<float>(me_ + 1));
  std::vector<std::int16_t> b(5, static_cast<std::int16_t>(-me_));
  grouped_allreduce(
      {a, b},
      {.op = ReduceOp::max, .prescale = 2.0, .postscale = 3.0, .compression = Compression::bf16});
  EXPECT_THAT(a, Each(6.0F * static_cast<float>(n_)));
  EXPECT_THAT(b, Each(0));
  std::vector<std::uint64_t> c(5, 7);
  grouped_allreduce({a, c}, {.op = ReduceOp::average});
  EXPECT_THAT(c, Each(7U));
}

TEST_F(GroupedAllreduce, IsAllOrNothing) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  for (int round = 0; round < 3; ++round) {
    std::vector<float> same(8, 1.0F);
    std::vector<float> odd(me_ == last_ ? 7 : 8, 2.0F);
    const auto error = thrown_by<Mismatch>([&] {
      grouped_allreduce({same, odd}, {.name = "group", .op = ReduceOp::sum});
    });
    EXPECT_EQ(error.tensor(), "group");
    EXPECT_EQ(error.ranks(), ranks());
    EXPECT_THAT(error.what(), HasSubstr("shape of tensor 1 [8] on rank"));
    EXPECT_THAT(error.what(), HasSubstr("[7] on rank " + std::to_string(last_)));
    EXPECT_THAT(same, Each(1.0F));
    EXPECT_THAT(odd, Each(2.0F));
    expect_usable();
  }
}

TEST_F(GroupedAllreduce, AnOperatorWithoutMeaningForOneMemberIsRefused) {
  std::vector<float> real(3, 1.0F);
  bool boolean = true;
  std::int32_t integer = 1;
  EXPECT_THROW(grouped_allreduce({real, boolean}, {.op = ReduceOp::sum}), InvalidArgument);
  EXPECT_THROW(grouped_allreduce({real, integer}, {.op = ReduceOp::adasum}), InvalidArgument);
  grouped_allreduce({real, boolean, integer}, {.op = ReduceOp::product});
  EXPECT_THAT(real, Each(1.0F));
}

TEST_F(GroupedAllreduce, TheNumberOfMembersMustMatch) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  float a = 1.0F;
  float b = 2.0F;
  const std::vector<TensorView> two{a, b};
  const auto error = thrown_by<Mismatch>(
      [&] { grouped_allreduce(std::span(two).first(me_ == 0 ? 1 : 2), {.name = "group"}); });
  EXPECT_THAT(error.what(), HasSubstr("number of tensors 1 on rank 0, 2 on rank"));
  expect_usable();
}

TEST_F(GroupedAllreduce, GroupsMayComeInAnyOrder) {
  constexpr int groups = 12;
  std::vector<std::vector<double>> values;
  for (int i = 0; i < 2 * groups; ++i) values.emplace_back(i + 1, me_ + i);
  std::vector<Future<void>> futures;
  for (int k = 0; k < groups; ++k) {
    const int i = me_ % 2 == 0 ? k : groups - 1 - k;
    auto* const first = &values[2 * static_cast<std::size_t>(i)];
    futures.push_back(grouped_allreduce_async(
        {first[0], first[1]},
        {.name = "group" + std::to_string(i), .op = ReduceOp::sum, .fuse_exactly = i % 3 == 0}));
  }
  for (Future<void>& future : futures) future.wait();
  for (int i = 0; i < 2 * groups; ++i)
    EXPECT_THAT(values[static_cast<std::size_t>(i)], Each(rank_sum_ + i * n_));
}

}  // namespace
}  // namespace kolo::internal
