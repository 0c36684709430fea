// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/pace_meter.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace kolo::internal::diagnostics {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

class PaceMeterTest : public testing::Test {
 protected:
  /// The program computes, then submits.
  void compute(nanoseconds time, const std::string& name, std::int64_t bytes = 100) {
    now_ += time;
    const std::uint32_t id = names_.find(name, 0, ++uses_);
    ++names_[id].submitted;
    meter_.submitted(id, !name.empty(), bytes, now_);
  }
  void wait(nanoseconds time) { meter_.resumed(now_ += time); }
  std::optional<PaceReport> take() { return meter_.take(names_, now_); }

  Names names_{1000};
  PaceMeter meter_{};
  TimePoint now_{1h};
  std::uint64_t uses_ = 0;
};

TEST_F(PaceMeterTest, TellsComputingFromWaiting) {
  compute(1s, "b");  // the start of the program does not count
  for (int step = 0; step < 10; ++step) {
    compute(20ms, "a");
    wait(60ms);
    compute(10ms, "b");
    wait(10ms);
  }
  const std::optional<PaceReport> report = take();
  ASSERT_TRUE(report);
  const RankPace& pace = report->ranks.at(0);
  EXPECT_EQ(pace.steps, 11U);
  EXPECT_EQ(pace.step, nanoseconds(1s) / 11);
  EXPECT_EQ(pace.computing, nanoseconds(300ms) / 11);
  EXPECT_EQ(pace.bytes_per_second, 2100U);
  ASSERT_EQ(report->operations.size(), 2U);
  EXPECT_EQ(report->operations[0].name, "b");
  EXPECT_EQ(report->operations[0].longest, nanoseconds(100ms) / 11);
  EXPECT_EQ(report->operations[1].name, "a");
  EXPECT_EQ(report->operations[1].longest, nanoseconds(200ms) / 11);
  EXPECT_EQ(report->operations[1].sum, report->operations[1].longest);
}

// What is submitted while the program computes on is not waited for.
TEST_F(PaceMeterTest, AWaitBeforeTheLastSubmissionChangesNothing) {
  compute(1ms, "a");
  const TimePoint before = now_;
  compute(300ms, "a");
  meter_.resumed(before);
  for (int step = 0; step < 4; ++step) compute(100ms, "a");
  EXPECT_EQ(take()->ranks.at(0).computing, nanoseconds(700ms) / 6);
}

TEST_F(PaceMeterTest, AWindowHasSeveralStepsUnlessTheyAreLong) {
  compute(1ms, "a");
  for (int step = 0; step < 3; ++step) compute(1s, "a");
  EXPECT_FALSE(take());
  compute(1s, "a");
  EXPECT_TRUE(take());
  compute(9s, "a");
  EXPECT_FALSE(take());
  compute(1s, "a");
  const std::optional<PaceReport> second = take();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->ranks.at(0).steps, 7U);
  EXPECT_EQ(second->ranks.at(0).computing, 5s);
}

TEST_F(PaceMeterTest, AWindowIsNotShort) {
  for (int step = 0; step < 100; ++step) compute(1ms, "a");
  EXPECT_FALSE(take());
  for (int step = 0; step < 200; ++step) compute(1ms, "a");
  EXPECT_TRUE(take());
  EXPECT_FALSE(take());  // a new window has begun
}

// Names that are used more often than once per step, or less, do not change the number of steps.
TEST_F(PaceMeterTest, MostNamesCountTheSteps) {
  compute(0ms, "a");
  for (int step = 0; step < 10; ++step) {
    for (const char* name : {"a", "b", "c"}) compute(10ms, name);
    for (int often = 0; often < 7; ++often) compute(10ms, "loss");
    for (int often = 0; often < 9; ++often) compute(0ms, "");
    if (step % 5 == 0) compute(0ms, "accuracy");
  }
  EXPECT_EQ(take()->ranks.at(0).step, 100ms);
}

TEST_F(PaceMeterTest, OnlyOperationsThatAreWorthItAreListed) {
  compute(0ms, "a");
  for (int step = 0; step < 10; ++step) {
    compute(99ms, "a");
    compute(1ms, "b");
    compute(10ms, "");
  }
  const std::optional<PaceReport> report = take();
  ASSERT_EQ(report->operations.size(), 2U);
  EXPECT_EQ(report->operations[0].name, "a");
  EXPECT_EQ(report->operations[1].name, "");
}

TEST_F(PaceMeterTest, OperationsWithoutNamesCountNoSteps) {
  for (int step = 0; step < 100; ++step) compute(10ms, "");
  EXPECT_FALSE(take());
}

}  // namespace
}  // namespace kolo::internal::diagnostics
