// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

using kolo::LearningRateSchedule;
using kolo::LearningRateScheduleOptions;

// The schedule of Goyal et al. for 8 ranks and 10 steps per epoch.
LearningRateScheduleOptions goyal() {
  return {.peak = 0.8,
          .warmup_from = 0.1,
          .warmup = 5,
          .steps_per_epoch = 10,
          .milestones = {{30, 0.1}, {60, 0.1}, {80, 0.1}}};
}

TEST(LearningRateSchedule, WarmsUpInAStraightLineStepByStep) {
  const LearningRateSchedule schedule(goyal());
  for (int step = 0; step <= 50; ++step) {
    EXPECT_NEAR(schedule(step), 0.1 + 0.7 * step / 50.0, 1e-12) << step;
  }
  EXPECT_EQ(schedule(50), 0.8);
  EXPECT_EQ(schedule(-3), schedule(0));
}

TEST(LearningRateSchedule, FallsAtEachMilestoneBesideThoseBefore) {
  const LearningRateSchedule schedule(goyal());
  EXPECT_EQ(schedule(299), 0.8);
  EXPECT_DOUBLE_EQ(schedule(300), 0.08);
  EXPECT_DOUBLE_EQ(schedule(599), 0.08);
  EXPECT_DOUBLE_EQ(schedule(600), 0.008);
  EXPECT_DOUBLE_EQ(schedule(10'000), 0.0008);
}

TEST(LearningRateSchedule, DecaysEveryFewEpochsAtTheirBeginning) {
  const LearningRateSchedule schedule(
      {.peak = 1.0, .steps_per_epoch = 4, .decay = 0.5, .decay_every = 2});
  for (int step = 0; step < 40; ++step) {
    EXPECT_DOUBLE_EQ(schedule(step), std::pow(0.5, step / 8)) << step;
  }
}

TEST(LearningRateSchedule, DecaysSmoothlyWithoutStaircase) {
  const LearningRateSchedule schedule(
      {.peak = 1.0, .steps_per_epoch = 4, .decay = 0.5, .decay_every = 2, .staircase = false});
  for (int step = 0; step < 40; ++step) {
    EXPECT_DOUBLE_EQ(schedule(step), std::pow(0.5, step / 8.0)) << step;
  }
}

TEST(LearningRateSchedule, AMultiplierIsGivenWholeEpochsOrFractions) {
  LearningRateScheduleOptions options{
      .peak = 2.0, .steps_per_epoch = 4, .multiplier = [](double epochs) { return 1 + epochs; }};
  EXPECT_DOUBLE_EQ(LearningRateSchedule(options)(7), 2.0 * (1 + 1));
  options.staircase = false;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(options)(7), 2.0 * (1 + 1.75));
}

TEST(LearningRateSchedule, NeverFallsBelowTheMinimumAfterWarmup) {
  LearningRateScheduleOptions options = goyal();
  options.warmup_from = 0.0;
  options.minimum = 0.01;
  const LearningRateSchedule schedule(options);
  EXPECT_EQ(schedule(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule(300), 0.08);
  EXPECT_EQ(schedule(600), 0.01);
}

TEST(LearningRateSchedule, FallsAlongACosineFromTheEndOfWarmup) {
  const LearningRateSchedule schedule({.peak = 1.0,
                                       .warmup_from = 0.2,
                                       .warmup = 2,
                                       .steps_per_epoch = 10,
                                       .cosine = 6,
                                       .minimum = 0.1});
  EXPECT_DOUBLE_EQ(schedule(10), 0.6);
  EXPECT_EQ(schedule(20), 1.0);
  const double third = 0.1 + 0.9 * 0.75;  // the cosine of a third of pi is a half
  EXPECT_NEAR(schedule(40), third, 1e-12);
  EXPECT_NEAR(schedule(50), 0.55, 1e-12);
  for (int step = 21; step <= 80; ++step) EXPECT_LT(schedule(step), schedule(step - 1)) << step;
  EXPECT_NEAR(schedule(80), 0.1, 1e-12);
  EXPECT_EQ(schedule(81), schedule(80));
  EXPECT_EQ(schedule(100'000), schedule(80));
}

TEST(LearningRateSchedule, ACosineExcludesOtherDecays) {
  LearningRateScheduleOptions options{.peak = 1.0, .cosine = 5};
  EXPECT_EQ(LearningRateSchedule(options)(0), 1.0);
  options.milestones = {{2, 0.1}};
  EXPECT_THROW(static_cast<void>(LearningRateSchedule(options)), kolo::InvalidArgument);
  options.milestones.clear();
  options.decay_every = 1.0;
  EXPECT_THROW(static_cast<void>(LearningRateSchedule(options)), kolo::InvalidArgument);
  options.decay_every = 0.0;
  options.multiplier = [](double) { return 1.0; };
  EXPECT_THROW(static_cast<void>(LearningRateSchedule(options)), kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 0.1, .cosine = 5, .minimum = 0.2}),
               kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 0.1, .cosine = -1}), kolo::InvalidArgument);
}

TEST(LearningRateSchedule, CountsInStepsUnlessToldOtherwise) {
  const LearningRateSchedule schedule({.peak = 1.0, .warmup = 4, .milestones = {{6, 0.5}}});
  EXPECT_DOUBLE_EQ(schedule(1), 0.25);
  EXPECT_EQ(schedule(5), 1.0);
  EXPECT_EQ(schedule(6), 0.5);
}

TEST(LearningRateSchedule, MomentumIsCorrectedInTheStepOfAChange) {
  const LearningRateSchedule schedule({.peak = 1.0, .milestones = {{6, 0.25}}});
  EXPECT_EQ(schedule.momentum_correction(0), 1.0);
  EXPECT_EQ(schedule.momentum_correction(5), 1.0);
  EXPECT_EQ(schedule.momentum_correction(6), 0.25);
  EXPECT_EQ(schedule.momentum_correction(7), 1.0);
  // A previous rate of 0 has no ratio.
  const LearningRateSchedule from_zero({.peak = 1.0, .warmup = 2});
  EXPECT_EQ(from_zero.momentum_correction(1), 1.0);
  EXPECT_EQ(from_zero.momentum_correction(2), 2.0);
}

TEST(LearningRateSchedule, RefusesWhatMakesNoSense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(LearningRateSchedule({.peak = -1.0}), kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = nan}), kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 1.0, .warmup = -1}), kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 1.0, .steps_per_epoch = 0}), kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 1.0, .milestones = {{5, 0.1}, {3, 0.1}}}),
               kolo::InvalidArgument);
  EXPECT_THROW(LearningRateSchedule({.peak = 1.0, .milestones = {{5, -0.1}}}),
               kolo::InvalidArgument);
}

}  // namespace
