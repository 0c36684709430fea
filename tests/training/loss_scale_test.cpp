// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

using kolo::LossScale;
using kolo::LossScaleOptions;

TEST(LossScale, ShrinksAtAnOverflowAndGrowsAfterManyStepsWithout) {
  LossScale scale({.initial = 8.0, .growth_interval = 3});
  const auto after = [&](bool overflow) {
    scale.update(overflow);
    return scale.value();
  };
  EXPECT_EQ(after(false), 8.0);
  EXPECT_EQ(after(false), 8.0);
  EXPECT_EQ(after(true), 4.0);
  EXPECT_EQ(after(true), 2.0);
  EXPECT_EQ(after(false), 2.0);  // counts from the overflow
  EXPECT_EQ(after(false), 2.0);
  EXPECT_EQ(after(false), 4.0);
  EXPECT_EQ(after(false), 4.0);
  EXPECT_EQ(after(false), 4.0);
  EXPECT_EQ(after(false), 8.0);
}

TEST(LossScale, TakesOtherFactors) {
  LossScale scale({.initial = 3.0, .growth_factor = 1.5, .backoff_factor = 0.25});
  scale.update(true);
  EXPECT_EQ(scale.value(), 0.75);
  EXPECT_EQ(LossScale().value(), 65536.0);
}

TEST(LossScale, StaysWhereItAndItsInverseAreNormalNumbers) {
  LossScale scale({.growth_interval = 1});
  for (int step = 0; step < 1000; ++step) scale.update(true);
  EXPECT_EQ(scale.value(), 0x1p-100);
  for (int step = 0; step < 1000; ++step) scale.update(false);
  EXPECT_EQ(scale.value(), 0x1p+100);
}

TEST(LossScale, GoesOnFromASavedState) {
  const LossScaleOptions options{.initial = 16.0, .growth_interval = 3};
  LossScale whole(options);
  for (int step = 0; step < 12; ++step) {
    LossScale resumed(options);
    resumed.load_state(whole.state());
    LossScale reference = whole;
    for (int later = step; later < 12; ++later) {
      resumed.update(later % 5 == 0);
      reference.update(later % 5 == 0);
      EXPECT_EQ(resumed.value(), reference.value());
    }
    whole.update(step % 5 == 0);
  }
}

TEST(LossScale, RefusesWhatMakesNoSense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double initial : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(LossScale({.initial = initial}), kolo::InvalidArgument);
  EXPECT_THROW(LossScale({.growth_factor = 1.0}), kolo::InvalidArgument);
  EXPECT_THROW(LossScale({.backoff_factor = 1.0}), kolo::InvalidArgument);
  EXPECT_THROW(LossScale({.backoff_factor = 0.0}), kolo::InvalidArgument);
  EXPECT_THROW(LossScale({.growth_interval = 0}), kolo::InvalidArgument);
  LossScale scale({.initial = 4.0});
  for (const char* state : {"", "kolo.plateau.1 1 0", "kolo.loss_scale.1 0x0p+0 0",
                            "kolo.loss_scale.1 0x1p+0 -1", "kolo.loss_scale.1 0x1p+0"})
    EXPECT_THROW(scale.load_state(state), kolo::InvalidArgument) << state;
  EXPECT_EQ(scale.value(), 4.0);
}

}  // namespace
