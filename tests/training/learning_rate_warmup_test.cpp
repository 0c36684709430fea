// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

TEST(LearningRateWarmup, GrowsLinearlyAndThenStays) {
  const kolo::LearningRateWarmup warmup({.from = 0.5, .to = 2.5, .steps = 4});
  EXPECT_EQ(warmup(0), 0.5);
  EXPECT_EQ(warmup(1), 1.0);
  EXPECT_EQ(warmup(2), 1.5);
  EXPECT_EQ(warmup(3), 2.0);
  EXPECT_EQ(warmup(4), 2.5);
  EXPECT_EQ(warmup(1'000'000'000'000), 2.5);
}

TEST(LearningRateWarmup, MayGoDown) {
  const kolo::LearningRateWarmup warmup({.from = 1.0, .to = 0.0, .steps = 2});
  EXPECT_EQ(warmup(1), 0.5);
  EXPECT_EQ(warmup(2), 0.0);
}

TEST(LearningRateWarmup, WithoutStepsIsThereAtOnce) {
  const kolo::LearningRateWarmup warmup({.from = 0.1, .to = 0.4});
  EXPECT_EQ(warmup(0), 0.4);
}

TEST(LearningRateWarmup, BeforeStepZeroIsTheStart) {
  const kolo::LearningRateWarmup warmup({.from = 0.1, .to = 0.4, .steps = 3});
  EXPECT_EQ(warmup(-5), 0.1);
}

TEST(LearningRateWarmup, RefusesNegativeSteps) {
  EXPECT_THROW(kolo::LearningRateWarmup({.from = 0.1, .to = 0.4, .steps = -1}),
               kolo::InvalidArgument);
}

}  // namespace
