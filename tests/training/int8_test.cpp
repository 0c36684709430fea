// SPDX-License-Identifier: Apache-2.0
// The communication hook that sends 8-bit integers.
#include <cmath>
#include <limits>

#include "../session/fixture.hpp"
#include "hook_model.hpp"
#include "training/hooks/bucket_memory.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr float infinity = std::numeric_limits<float>::infinity();

class Int8 : public WithHookModel {
 protected:
  Int8() : WithHookModel({{"large", 5000}, {"small", 10}}) {}

  /// Elements that 8 bits hold exactly, also as a sum over the ranks.
  void fill_exactly(double factor) {
    for (Values& values : model_.all)
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(factor * (i % 16 == 0 ? 127 : static_cast<int>(i % 19) - 9));
  }
};

TEST_F(Int8, IsExactForIntegers) {
  for (const int groups : {0, 1}) {
    DistributedOptimizer optimizer(model_, {.num_groups = groups, .hook = int8({.block = 64})});
    for (int step = 0; step < 3; ++step) {
      fill_exactly(me_ + 1.0);
      optimizer.step();
      const std::vector<Values> result = model_.all;
      fill_exactly((n_ + 1) / 2.0);
      EXPECT_EQ(result, model_.all);
    }
  }
}

TEST_F(Int8, GivesTheSameBitsOnAllRanksNearTheMean) {
  DistributedOptimizer optimizer(model_, {.hook = int8()});
  for (unsigned step = 0; step < 5; ++step) {
    const std::vector<Values> mean = fill_randomly(step);
    optimizer.step();
    expect_same_bits();
    expect_near(mean, 0.1);
  }
}

TEST_F(Int8, FeedsErrorsBack) {
  for (const bool feedback : {true, false}) {
    DistributedOptimizer optimizer(
        model_, {.op = ReduceOp::sum, .hook = int8({.error_feedback = feedback})});
    constexpr int steps = 64;
    Values total(5000);
    const std::vector<Values> mean = fill_randomly(0);
    const std::vector<Values> own = model_.all;
    for (int step = 0; step < steps; ++step) {
      std::copy(own[0].begin(), own[0].end(), model_.all[0].begin());
      optimizer.step();
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += model_.all[0][i];
    }
    double lost = 0.0;
    for (std::size_t i = 0; i < total.size(); ++i)
      lost = std::max(lost, std::abs(total[i] / steps - n_ * double{mean[0][i]}));
    if (n_ == 1) continue;
    EXPECT_EQ(lost < 0.002 * n_, feedback) << lost;
  }
}

TEST_F(Int8, MakesBlocksThatAreNotFiniteNanAndKeepsTheirErrors) {
  constexpr std::size_t block = 64;
  const auto hook = int8({.block = block});
  DistributedOptimizer optimizer(model_, {.hook = hook});
  if (n_ == 1) return;
  const auto errors = [&] {
    return vectors_of("kolo.int8.1", hook->per_rank_state()).at(".large");
  };
  fill_randomly(0);
  optimizer.step();
  for (const std::size_t place : {std::size_t{70}, std::size_t{4999}}) {
    const Values before = errors();
    fill_randomly(1);
    if (me_ == last_) model_.all[0][place] = infinity;
    static_cast<void>(optimizer.reduce());
    const Values after = errors();
    int changed = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool is_bad = i / block == place / block;
      EXPECT_EQ(std::isnan(model_.all[0][i]), is_bad) << i;
      EXPECT_TRUE(!is_bad || after[i] == before[i]) << i;
      changed += after[i] != before[i] ? 1 : 0;
    }
    EXPECT_GT(changed, 4000);
  }
}

TEST_F(Int8, KeepsErrorsOfAWholeBucketThatIsNotFinite) {
  const auto hook = int8();
  DistributedOptimizer optimizer(model_, {.hook = hook});
  fill_randomly(0);
  optimizer.step();
  const StateDict errors = hook->per_rank_state();
  for (Values& values : model_.all) std::fill(values.begin(), values.end(), infinity);
  ReducedGradients reduced = optimizer.reduce();
  EXPECT_FALSE(std::isfinite(optimizer.clip_grad_norm(reduced, 1.0)));
  EXPECT_EQ(hook->per_rank_state(), errors);
  if (n_ == 1) return;
  EXPECT_THAT(model_.all[0], Each(testing::IsNan()));
}

TEST_F(Int8, ASumThatOverflowsBecomesNan) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  DistributedOptimizer optimizer(model_, {.hook = int8()});
  std::fill(model_.all[0].begin(), model_.all[0].end(), 3e38F);
  optimizer.step();
  EXPECT_THAT(model_.all[0], Each(testing::IsNan()));
}

TEST_F(Int8, LeavesShortBucketsAlone) {
  DistributedOptimizer optimizer(model_, {.hook = int8({.min_elements = 11})});
  const std::vector<Values> mean = fill_randomly(0);
  optimizer.step();
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(model_.all[1][i], mean[1][i], 1e-6);
}

// A slice has no block if there are more ranks than blocks.
TEST_F(Int8, TakesAnyNumberOfElements) {
  for (const int elements : {1, 15, 16, 17, 33, 64, 65}) {
    HookModel model({{"values", elements}});
    DistributedOptimizer optimizer(model, {.hook = int8({.block = 16, .min_elements = 0})});
    std::iota(model.all[0].begin(), model.all[0].end(), 0.0F);
    const Values expected = model.all[0];
    optimizer.step();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(model.all[0][i], expected[i], elements / 127.0);
  }
}

TEST_F(Int8, ReducesOtherTypes) {
  struct Types {
    std::vector<double> doubles = std::vector<double>(100);
    std::vector<std::uint16_t> halves = std::vector<std::uint16_t>(100);
    std::vector<NamedTensor> gradients() {
      return {{"doubles", doubles},
              {"halves", TensorView(halves.data(), Shape(halves.size()), DType::bf16)}};
    }
    void step() {}
  } model;
  for (const int groups : {0, 1}) {
    DistributedOptimizer optimizer(
        model, {.op = ReduceOp::sum, .num_groups = groups, .hook = int8({.min_elements = 1})});
    model.doubles.assign(100, 2.0);
    model.halves.assign(100, 0x4000);  // 2.0
    optimizer.step();
    EXPECT_THAT(model.doubles, Each(2.0 * n_));
    const std::uint16_t expected = std::vector<std::uint16_t>{0x4000, 0x4080, 0x40c0, 0x4100}.at(
        static_cast<std::size_t>(n_ - 1));
    EXPECT_THAT(model.halves, Each(expected));
  }
}

TEST_F(Int8, StateResumesBitForBit) {
  const auto hook = int8();
  DistributedOptimizer optimizer(model_, {.hook = hook});
  for (const unsigned step : {0U, 1U, 2U}) {
    fill_randomly(step);
    optimizer.step();
  }
  const StateDict shared = hook->state();
  const StateDict own = hook->per_rank_state();
  fill_randomly(3);
  optimizer.step();
  const std::vector<Values> expected = model_.all;
  const auto resumed = int8();
  resumed->load_state(shared);
  resumed->load_per_rank_state(own);
  EXPECT_EQ(resumed->per_rank_state(), own);
  DistributedOptimizer other(model_, {.hook = resumed});
  fill_randomly(3);
  other.step();
  EXPECT_EQ(model_.all, expected);
  // On another number of ranks there is no per-rank state.
  resumed->load_state(shared);
  EXPECT_EQ(resumed->per_rank_state(), int8()->per_rank_state());
}

TEST_F(Int8, RefusesOtherState) {
  const auto hook = int8();
  EXPECT_THROW(hook->load_state(power_sgd()->state()), InvalidArgument);
  EXPECT_THROW(hook->load_per_rank_state("rubbish"), InvalidArgument);
  EXPECT_THROW(hook->load_per_rank_state(""), InvalidArgument);
}

TEST_F(Int8, RefusesOptions) {
  for (const int block : {0, -16, 8, 24, 65552})
    EXPECT_THAT(
        thrown_by<InvalidArgument>([&] { static_cast<void>(int8({.block = block})); }).what(),
        HasSubstr(std::to_string(block)));
}

TEST_F(Int8, ReducesWithoutIntegersWhenRanksHaveJoined) {
  DistributedOptimizer optimizer(model_, {.op = ReduceOp::sum, .hook = int8()});
  for (int step = 0; step <= 2 * me_; ++step) {
    fill_exactly(1.0);
    optimizer.step();
    int present = 0;
    for (int rank = 0; rank < n_; ++rank) present += step <= 2 * rank ? 1 : 0;
    EXPECT_EQ(model_.all[0][16], 127.0F * static_cast<float>(present));
    EXPECT_EQ(model_.all[1][1], -8.0F * static_cast<float>(present));
  }
  join();
  fill_exactly(1.0);
  optimizer.step();
  EXPECT_EQ(model_.all[0][16], 127.0F * static_cast<float>(n_));
}

// The rank has sent its part of the first operation, but not of the second: the others send theirs
// when it has joined.
TEST_F(Int8, ReducesWithoutARankThatJoinsInTheMiddleOfAStep) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  DistributedOptimizer optimizer(model_, {.op = ReduceOp::sum, .hook = int8()});
  fill_exactly(1.0);
  if (me_ == last_) optimizer.ready("large");
  if (me_ != last_) {
    float has_joined = 1.0F;
    allreduce(std::span(&has_joined, 1), {.name = "without the last rank", .op = ReduceOp::sum});
    EXPECT_EQ(has_joined, static_cast<float>(last_));
    optimizer.step();
    EXPECT_EQ(model_.all[0][16], 127.0F * static_cast<float>(last_));
    EXPECT_EQ(model_.all[1][1], -8.0F * static_cast<float>(last_));
  }
  join();
  if (me_ == last_) {
    EXPECT_THROW(optimizer.step(), InvalidArgument);
  }
  for (int step = 0; step < 2; ++step) {
    fill_exactly(1.0);
    optimizer.step();
    EXPECT_EQ(model_.all[0][16], 127.0F * static_cast<float>(n_));
  }
}

TEST_F(Int8, ReducesInSubsets) {
  std::vector<int> ends{0};
  if (last_ > 0) ends.push_back(last_);
  const ProcessSet set = add_process_set(ends);
  DistributedOptimizer optimizer(model_, {.hook = int8(), .process_set = set});
  fill_exactly(me_ + 1.0);
  optimizer.step();
  const double mean = set.contains(me_) ? (n_ + 1.0) / 2.0 : me_ + 1.0;
  EXPECT_EQ(model_.all[0][16], static_cast<float>(127.0 * mean));
}

TEST_F(Int8, SendsAQuarterOfTheBytes) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  HookModel model({{"values", 256 * 100}});
  DistributedOptimizer optimizer(model, {.hook = int8()});
  const auto bytes = [] {
    std::uint64_t sum = 0;
    for (const Statistics::Kind& kind : statistics().kinds)
      if (kind.operation == "alltoall" || kind.operation == "allgather") sum += kind.bytes;
    return sum;
  };
  const std::uint64_t before = bytes();
  optimizer.step();
  // Each rank sends its blocks of other slices, and then its slice.
  EXPECT_EQ(bytes() - before, 100U * 260U);
}

}  // namespace
}  // namespace kolo::internal
