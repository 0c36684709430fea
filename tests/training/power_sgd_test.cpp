// SPDX-License-Identifier: Apache-2.0
// The communication hook that sends approximations of low rank.
#include <cmath>
#include <limits>

#include "../session/fixture.hpp"
#include "hook_model.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

class PowerSgd : public WithHookModel {
 protected:
  PowerSgd() : WithHookModel({{"matrix", {40, 30}}, {"kernels", {16, 8, 3, 3}}, {"bias", 40}}) {}

  /// Every rank's matrices have this rank together.
  std::vector<Values> fill_with_low_rank(int rank_of_sum, int step = 0) {
    std::vector<Values> mean = model_.all;
    for (std::size_t k = 0; k < mean.size(); ++k)
      for (std::size_t i = 0; i < mean[k].size(); ++i) {
        const std::size_t columns = mean[k].size() / static_cast<std::size_t>(model_.shapes[k][0]);
        double value = 0.0;
        for (int r = 1; r <= rank_of_sum; ++r)
          value += std::sin(0.7 * r * static_cast<double>(i / columns) + step) *
                   std::cos(0.3 * r * static_cast<double>(i % columns) - step) / r;
        model_.all[k][i] = static_cast<float>(value * (me_ + 1.0));
        mean[k][i] = static_cast<float>(value * (n_ + 1.0) / 2.0);
      }
    return mean;
  }
};

TEST_F(PowerSgd, IsNearlyExactForLowRank) {
  for (const int groups : {0, 1}) {
    DistributedOptimizer optimizer(model_, {.num_groups = groups, .hook = power_sgd({.rank = 3})});
    for (int step = 0; step < 4; ++step) {
      const std::vector<Values> mean = fill_with_low_rank(2, step);
      optimizer.step();
      expect_same_bits();
      expect_near(mean, 1e-4);
    }
  }
}

TEST_F(PowerSgd, GivesTheSameBitsOnAllRanks) {
  for (const bool warm : {true, false}) {
    DistributedOptimizer optimizer(model_, {.hook = power_sgd({.rank = 2, .warm_start = warm})});
    for (unsigned step = 0; step < 4; ++step) {
      const std::vector<Values> mean = fill_randomly(step);
      optimizer.step();
      expect_same_bits();
      for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(model_.all[2][i], mean[2][i], 1e-5);
    }
  }
}

// The mean over steps approaches the gradient only with feedback.
TEST_F(PowerSgd, FeedsErrorsBack) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  for (const bool feedback : {true, false}) {
    DistributedOptimizer optimizer(model_,
                                   {.hook = power_sgd({.rank = 2, .error_feedback = feedback})});
    constexpr int steps = 200;
    std::vector<double> total(model_.all[0].size());
    const std::vector<Values> mean = fill_randomly(0);
    const std::vector<Values> own = model_.all;
    for (int step = 0; step < steps; ++step) {
      model_.all = own;
      optimizer.step();
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += model_.all[0][i];
    }
    double lost = 0.0;
    double all = 0.0;
    for (std::size_t i = 0; i < total.size(); ++i) {
      lost += std::pow(total[i] / steps - mean[0][i], 2);
      all += std::pow(mean[0][i], 2);
    }
    EXPECT_EQ(lost < 0.05 * all, feedback) << lost << " of " << all;
  }
}

TEST_F(PowerSgd, WarmStartsFollowTheGradient) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  std::vector<double> lost;
  for (const bool warm : {true, false}) {
    DistributedOptimizer optimizer(
        model_, {.hook = power_sgd({.rank = 2, .warm_start = warm, .error_feedback = false})});
    for (int step = 0; step < 10; ++step) {
      const std::vector<Values> mean = fill_with_low_rank(6);
      optimizer.step();
      double sum = 0.0;
      for (std::size_t i = 0; i < mean[0].size(); ++i)
        sum += std::pow(mean[0][i] - model_.all[0][i], 2);
      if (step == 9) lost.push_back(sum);
    }
  }
  EXPECT_LT(lost[0], 0.95 * lost[1]);
}

TEST_F(PowerSgd, MakesABucketThatIsNotFiniteNanAndKeepsItsState) {
  const auto hook = power_sgd({.rank = 2});
  DistributedOptimizer optimizer(model_, {.hook = hook});
  fill_randomly(0);
  optimizer.step();
  const StateDict shared = hook->state();
  const StateDict own = hook->per_rank_state();
  for (const float bad : {std::numeric_limits<float>::infinity(), 3e38F}) {
    if (n_ == 1) continue;
    for (Values& values : model_.all) std::fill(values.begin(), values.end(), 0.0F);
    std::fill(model_.all[1].begin(), model_.all[1].end(), bad);
    if (me_ == last_) model_.all[0][77] = bad * 2.0F;
    static_cast<void>(optimizer.reduce());
    EXPECT_THAT(model_.all[0], Each(testing::IsNan()));
    EXPECT_THAT(model_.all[1], Each(testing::IsNan()));
    EXPECT_EQ(hook->state(), shared);
    EXPECT_EQ(hook->per_rank_state(), own);
  }
  fill_with_low_rank(2);
  optimizer.step();
  for (const Values& values : model_.all)
    for (const float value : values) ASSERT_TRUE(std::isfinite(value));
}

TEST_F(PowerSgd, ZerosDoNotEndIt) {
  DistributedOptimizer optimizer(model_, {.hook = power_sgd({.rank = 3})});
  for (Values& values : model_.all) std::fill(values.begin(), values.end(), 0.0F);
  optimizer.step();
  for (const Values& values : model_.all) EXPECT_THAT(values, Each(0.0F));
  for (int step = 0; step < 2; ++step) {
    const std::vector<Values> mean = fill_with_low_rank(2);
    optimizer.step();
    expect_near(mean, 1e-4);
  }
}

TEST_F(PowerSgd, StateResumesBitForBit) {
  const PowerSgdOptions options{.rank = 2};
  const auto hook = power_sgd(options);
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
  const auto resume = [&](bool with_own) {
    const auto resumed = power_sgd(options);
    resumed->load_state(shared);
    if (with_own) resumed->load_per_rank_state(own);
    DistributedOptimizer other(model_, {.hook = resumed});
    fill_randomly(3);
    other.step();
    expect_same_bits();
    return model_.all == expected;
  };
  EXPECT_TRUE(resume(true));
  EXPECT_EQ(resume(false), n_ == 1);
  EXPECT_THROW(hook->load_state(own), InvalidArgument);
  EXPECT_THROW(hook->load_per_rank_state("rubbish"), InvalidArgument);
}

TEST_F(PowerSgd, SendsFactors) {
  if (n_ == 1) GTEST_SKIP() << "one rank has no hook";
  HookModel model({{"matrix", {100, 80}}});
  DistributedOptimizer optimizer(model, {.hook = power_sgd({.rank = 4})});
  const auto bytes = [] {
    for (const Statistics::Kind& kind : statistics().kinds)
      if (kind.operation == "allreduce") return kind.bytes;
    return std::uint64_t{0};
  };
  const std::uint64_t before = bytes();
  optimizer.step();
  EXPECT_EQ(bytes() - before, (100U + 80U) * 4U * 4U + 4U);  // and how the hooks are
}

TEST_F(PowerSgd, ContinuesWhenRanksHaveJoined) {
  DistributedOptimizer optimizer(model_, {.op = ReduceOp::sum, .hook = power_sgd({.rank = 3})});
  for (int step = 0; step <= me_; ++step) {
    std::vector<Values> expected = fill_with_low_rank(1);
    double present = 0.0;
    for (int rank = step; rank < n_; ++rank) present += rank + 1.0;
    for (Values& values : expected)
      for (float& value : values) value *= static_cast<float>(2.0 * present / (n_ + 1.0));
    optimizer.step();
    expect_near(expected, 1e-3);
  }
  join();
  for (int step = 0; step < 2; ++step) {
    fill_with_low_rank(2);
    optimizer.step();
    expect_same_bits();
  }
}

TEST_F(PowerSgd, RefusesOptions) {
  EXPECT_THROW(static_cast<void>(power_sgd({.rank = 0})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(power_sgd({.rank = 65})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(power_sgd({.min_compression = 1.0})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(power_sgd({.min_compression = std::nan("")})), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal
