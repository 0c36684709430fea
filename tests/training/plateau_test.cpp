// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

using kolo::EarlyStopping;
using kolo::Goal;
using kolo::ReduceOnPlateau;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Plateau : public testing::Test {
 protected:
  // A metric with the average `mean` and a different value on each rank.
  [[nodiscard]] double around(double mean) const {
    return mean + kolo::rank() - (kolo::size() - 1) / 2.0;
  }

  static void expect_same_on_all_ranks(double value) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    const std::uint64_t mine = bits;
    kolo::broadcast(bits, 0);
    EXPECT_EQ(bits, mine);
  }

  kolo::Session session_;
};

TEST_F(Plateau, ReducesAfterPatienceIsOver) {
  ReduceOnPlateau plateau({.learning_rate = 1.0, .factor = 0.5, .patience = 2});
  EXPECT_FALSE(plateau.update(around(10.0)));
  EXPECT_FALSE(plateau.update(around(9.0)));
  EXPECT_FALSE(plateau.update(around(9.0)));
  EXPECT_FALSE(plateau.update(around(9.5)));
  EXPECT_EQ(plateau.learning_rate(), 1.0);
  EXPECT_TRUE(plateau.update(around(9.0)));
  EXPECT_EQ(plateau.learning_rate(), 0.5);
  EXPECT_DOUBLE_EQ(*plateau.best(), 9.0);
}

TEST_F(Plateau, DecidesFromTheAverageAlikeOnAllRanks) {
  // The local metric keeps improving on rank 0 and keeps getting worse on the last rank.
  ReduceOnPlateau plateau({.learning_rate = 1.0, .factor = 0.5, .patience = 1});
  for (int update = 0; update < 6; ++update) {
    const double slope = kolo::rank() - (kolo::size() - 1) / 2.0;
    plateau.update(100.0 + update * slope);
    expect_same_on_all_ranks(plateau.learning_rate());
  }
  // The average does not change: reductions at updates 2 and 4.
  EXPECT_EQ(plateau.learning_rate(), 0.25);
}

TEST_F(Plateau, MetricsCountByTheirWeight) {
  ReduceOnPlateau plateau({.learning_rate = 1.0});
  // Sum of r (r + 1) over sum of (r + 1) is 2 (n - 1) / 3.
  plateau.update(kolo::rank(), kolo::rank() + 1.0);
  EXPECT_NEAR(*plateau.best(), 2.0 * (kolo::size() - 1) / 3.0, 1e-12);
}

TEST_F(Plateau, TheGoalMayBeAMaximum) {
  ReduceOnPlateau plateau(
      {.learning_rate = 1.0, .improvement = {.goal = Goal::maximum}, .factor = 0.1, .patience = 0});
  EXPECT_FALSE(plateau.update(around(1.0)));
  EXPECT_FALSE(plateau.update(around(2.0)));
  EXPECT_TRUE(plateau.update(around(1.5)));
}

TEST_F(Plateau, ThresholdsAreRelativeOrAbsolute) {
  const auto reduces = [](kolo::Improvement improvement, double first, double second) {
    ReduceOnPlateau plateau({.learning_rate = 1.0, .improvement = improvement, .patience = 0});
    plateau.update(first);
    return plateau.update(second);
  };
  const kolo::Improvement relative{.threshold = 0.1};
  EXPECT_TRUE(reduces(relative, 100.0, 91.0));
  EXPECT_FALSE(reduces(relative, 100.0, 89.0));
  EXPECT_TRUE(reduces(relative, -100.0, -109.0));
  EXPECT_FALSE(reduces(relative, -100.0, -111.0));
  const kolo::Improvement absolute{.threshold = 0.1, .relative = false};
  EXPECT_TRUE(reduces(absolute, 100.0, 99.95));
  EXPECT_FALSE(reduces(absolute, 100.0, 99.85));
  const kolo::Improvement upward{.goal = Goal::maximum, .threshold = 0.1};
  EXPECT_TRUE(reduces(upward, 100.0, 109.0));
  EXPECT_FALSE(reduces(upward, 100.0, 111.0));
}

TEST_F(Plateau, CooldownIsNotCounted) {
  ReduceOnPlateau plateau({.learning_rate = 1.0, .factor = 0.5, .patience = 0, .cooldown = 2});
  plateau.update(1.0);
  std::vector<bool> reduced;
  for (int update = 0; update < 7; ++update) reduced.push_back(plateau.update(1.0));
  EXPECT_THAT(reduced, testing::ElementsAre(true, false, false, true, false, false, true));
}

TEST_F(Plateau, TheRateStaysAtTheMinimum) {
  ReduceOnPlateau plateau({.learning_rate = 1.0, .factor = 0.5, .patience = 0, .minimum = 0.4});
  plateau.update(1.0);
  EXPECT_TRUE(plateau.update(1.0));
  EXPECT_TRUE(plateau.update(1.0));
  EXPECT_EQ(plateau.learning_rate(), 0.4);
  EXPECT_FALSE(plateau.update(1.0));
  EXPECT_EQ(plateau.learning_rate(), 0.4);
}

TEST_F(Plateau, WhatIsNoNumberIsNoImprovement) {
  ReduceOnPlateau plateau({.learning_rate = 1.0, .factor = 0.5, .patience = 1});
  EXPECT_FALSE(plateau.update(kolo::rank() == 0 ? nan : 1.0));
  EXPECT_FALSE(plateau.best().has_value());
  EXPECT_TRUE(plateau.update(1.0, /*weight=*/0.0));
  EXPECT_FALSE(plateau.update(1.0));
  EXPECT_EQ(plateau.best(), 1.0);
}

TEST_F(Plateau, AnInfiniteMetricIsImprovedByEveryFiniteOne) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool relative : {true, false}) {
    ReduceOnPlateau plateau({.learning_rate = 1.0,
                             .improvement = {.threshold = 0.1, .relative = relative},
                             .factor = 0.5,
                             .patience = 1});
    EXPECT_FALSE(plateau.update(infinity));
    for (const double metric : {1000.0, 100.0, 10.0}) EXPECT_FALSE(plateau.update(metric));
    EXPECT_EQ(plateau.best(), 10.0);
    EXPECT_EQ(plateau.learning_rate(), 1.0);
  }
}

TEST_F(Plateau, GoesOnFromASavedState) {
  const kolo::ReduceOnPlateauOptions options{
      .learning_rate = 1.0, .factor = 0.3, .patience = 1, .cooldown = 1};
  const std::vector<double> metrics = {3.0, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 1.0 / 3.0, 1.0, 1.0};
  ReduceOnPlateau whole(options);
  for (std::size_t stop = 0; stop < metrics.size(); ++stop) {
    ReduceOnPlateau resumed(options);
    resumed.load_state(whole.state());
    ReduceOnPlateau reference(options);
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      const bool reduced = reference.update(metrics[i]);
      if (i < stop) continue;
      EXPECT_EQ(resumed.update(metrics[i]), reduced) << stop << ' ' << i;
    }
    EXPECT_EQ(resumed.learning_rate(), reference.learning_rate());
    EXPECT_EQ(resumed.best(), reference.best());
    whole.update(metrics[stop]);
  }
  EXPECT_THROW(whole.load_state("kolo.sampler.1 0 0 0 0 0"), kolo::InvalidArgument);
}

TEST_F(Plateau, RefusesWhatMakesNoSense) {
  EXPECT_THROW(ReduceOnPlateau({.learning_rate = 0.0}), kolo::InvalidArgument);
  EXPECT_THROW(ReduceOnPlateau({.learning_rate = 1.0, .factor = 1.0}), kolo::InvalidArgument);
  EXPECT_THROW(ReduceOnPlateau({.learning_rate = 1.0, .patience = -1}), kolo::InvalidArgument);
  EXPECT_THROW(ReduceOnPlateau({.learning_rate = 1.0, .improvement = {.threshold = -1.0}}),
               kolo::InvalidArgument);
  EXPECT_THROW(EarlyStopping({.patience = -1}), kolo::InvalidArgument);
  ReduceOnPlateau plateau({.learning_rate = 1.0});
  EXPECT_THROW(plateau.update(1.0, -1.0), kolo::InvalidArgument);
  EXPECT_FALSE(plateau.update(1.0));
}

TEST_F(Plateau, StopsOnAllRanksTogetherAndForEver) {
  EarlyStopping stopping({.patience = 2});
  EXPECT_FALSE(stopping.update(around(5.0)));
  EXPECT_TRUE(stopping.improved());
  EXPECT_FALSE(stopping.update(around(5.0)));
  EXPECT_FALSE(stopping.improved());
  EXPECT_FALSE(stopping.update(around(4.0)));
  EXPECT_TRUE(stopping.improved());
  EXPECT_FALSE(stopping.update(around(4.5)));
  EXPECT_FALSE(stopping.update(around(4.5)));
  EXPECT_TRUE(stopping.update(around(4.5)));
  EXPECT_TRUE(stopping.stopped());
  EXPECT_TRUE(stopping.update(around(0.0)));
  EXPECT_DOUBLE_EQ(*stopping.best(), 4.0);
}

TEST_F(Plateau, EarlyStoppingGoesOnFromASavedState) {
  EarlyStopping first({.patience = 1});
  first.update(1.0);
  first.update(2.0);
  EarlyStopping second({.patience = 1});
  second.load_state(first.state());
  EXPECT_EQ(second.best(), 1.0);
  EXPECT_FALSE(second.stopped());
  EXPECT_TRUE(second.update(2.0));
  EXPECT_FALSE(first.stopped());
}

TEST_F(Plateau, DecidesWithinAProcessSet) {
  const kolo::ProcessSet alone = kolo::add_process_set({0});
  if (kolo::rank() != 0) return;
  ReduceOnPlateau plateau({.learning_rate = 1.0, .patience = 0, .process_set = alone});
  plateau.update(1.0);
  EXPECT_TRUE(plateau.update(1.0));
}

}  // namespace
