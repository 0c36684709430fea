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
    meter_.submitted(id, !name.empty(), bytes, now_, waited_);
  }
  void wait(nanoseconds time) {
    now_ += time;
    waited_ += time;
  }
  std::optional<PaceReport> take() { return meter_.take(names_); }

  Names names_{1000};
  PaceMeter meter_{};
  TimePoint now_{1h};
  nanoseconds waited_{5h};
  std::uint64_t uses_ = 0;
};

TEST_F(PaceMeterTest, TellsComputingFromWaiting) {
  compute(1s, "a");  // the start of the program does not count
  for (int step = 0; step < 5; ++step) {
    wait(60ms);
    compute(10ms, "b");
    wait(5ms);
    compute(5ms, "");
    wait(5ms);
    compute(15ms, "a");
  }
  const std::optional<PaceReport> report = take();
  ASSERT_TRUE(report);
  const RankPace& pace = report->ranks.at(0);
  EXPECT_EQ(pace.steps, 5U);
  EXPECT_EQ(pace.step, 100ms);
  EXPECT_EQ(pace.computing, 30ms);
  EXPECT_EQ(pace.bytes_per_second, 3000U);
  ASSERT_EQ(report->operations.size(), 3U);
  EXPECT_EQ(report->operations[0].name, "b");
  EXPECT_EQ(report->operations[0].longest, 10ms);
  EXPECT_EQ(report->operations[1].name, "");
  EXPECT_EQ(report->operations[1].longest, 5ms);
  EXPECT_EQ(report->operations[2].name, "a");
  EXPECT_EQ(report->operations[2].longest, 15ms);
  EXPECT_EQ(report->operations[2].sum, 15ms);
  EXPECT_FALSE(take());
}

// What the program computes between a submission and its wait counts, whether it waits then or not.
TEST_F(PaceMeterTest, WhatIsComputedBeforeAWaitCounts) {
  compute(0ms, "a");
  for (int step = 0; step < 10; ++step) {
    now_ += 30ms;
    wait(1ms);
    compute(69ms, "a");
  }
  EXPECT_EQ(take()->ranks.at(0).computing, 99ms);
}

TEST_F(PaceMeterTest, AWaitThatSeemsLongerThanTheTimeIsNoDebt) {
  compute(0ms, "a");
  for (int step = 0; step < 5; ++step) {
    compute(50ms, "b");
    waited_ += 10s;
    compute(50ms, "a");
  }
  EXPECT_EQ(take()->ranks.at(0).computing, 50ms);
}

TEST_F(PaceMeterTest, AWindowHasSeveralStepsUnlessTheyAreLong) {
  compute(0ms, "a");
  for (int step = 0; step < 4; ++step) compute(1s, "a");
  EXPECT_FALSE(take());
  compute(1s, "a");
  EXPECT_TRUE(take());
  compute(9s, "a");
  EXPECT_FALSE(take());
  compute(3s, "a");
  const std::optional<PaceReport> second = take();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->ranks.at(0).steps, 7U);
  EXPECT_EQ(second->ranks.at(0).computing, 6s);
}

TEST_F(PaceMeterTest, AWindowIsNotShort) {
  for (int step = 0; step < 250; ++step) compute(1ms, "a");
  EXPECT_FALSE(take());
  compute(1ms, "a");
  EXPECT_TRUE(take());
}

// However long a step is, and whenever the window is asked for.
TEST_F(PaceMeterTest, AWindowHasWholeSteps) {
  for (const nanoseconds part : {nanoseconds(7ms), nanoseconds(1s), nanoseconds(7s)}) {
    int windows = 0;
    const auto check = [&] {
      const std::optional<PaceReport> report = take();
      if (!report || ++windows <= 2) return;  // the first may hold steps of another length
      EXPECT_EQ(report->ranks.at(0).step, 5 * part);
      EXPECT_EQ(report->ranks.at(0).computing, 4 * part);
    };
    for (int step = 0; step < 100; ++step) {
      for (const char* name : {"a", "b", "c", "d"}) {
        compute(part, name);
        check();
      }
      wait(part);
    }
    EXPECT_GE(windows, 5);
  }
}

// Names that are used more often than once per step, or less, do not change the number of steps.
TEST_F(PaceMeterTest, MostNamesCountTheSteps) {
  compute(0ms, "loss");
  std::optional<PaceReport> last;
  for (int step = 0; step < 50; ++step) {
    for (const char* name : {"a", "b", "c"}) compute(10ms, name);
    for (int often = 0; often < 7; ++often) compute(10ms, "loss");
    for (int often = 0; often < 9; ++often) compute(0ms, "");
    if (step % 5 == 0) compute(0ms, "accuracy");
    if (auto report = take()) last = report;
  }
  ASSERT_TRUE(last);
  EXPECT_EQ(last->ranks.at(0).step, 100ms);
  EXPECT_EQ(last->ranks.at(0).computing, 100ms);
}

TEST_F(PaceMeterTest, ANameThatIsUsedOnlyAtTheStartCountsNoSteps) {
  compute(0ms, "of the start");
  for (int step = 0; step < 20; ++step) compute(100ms, "a");
  const std::optional<PaceReport> report = take();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->ranks.at(0).step, 100ms);
}

// Barriers at the start, and the names of a phase that is over.
TEST_F(PaceMeterTest, NamesThatAreNotUsedAnyMoreCountNoSteps) {
  for (const int uses : {2, 3, 4, 5, 100}) {
    for (int use = 0; use < uses; ++use) compute(100ms, "of " + std::to_string(uses));
    static_cast<void>(take());
    for (int step = 0; step < 60; ++step) compute(70ms, "a");
    const std::optional<PaceReport> report = take();
    ASSERT_TRUE(report) << uses;
    EXPECT_EQ(report->ranks.at(0).step, 70ms) << uses;
  }
}

TEST_F(PaceMeterTest, OnlyOperationsThatAreWorthItAreListed) {
  compute(0ms, "a");
  for (int step = 0; step < 5; ++step) {
    compute(1ms, "b");
    compute(10ms, "");
    compute(99ms, "a");
  }
  const std::optional<PaceReport> report = take();
  ASSERT_EQ(report->operations.size(), 2U);
  EXPECT_EQ(report->operations[0].name, "");
  EXPECT_EQ(report->operations[1].name, "a");
}

TEST_F(PaceMeterTest, OperationsWithoutNamesCountNoSteps) {
  for (int step = 0; step < 100; ++step) compute(10ms, "");
  EXPECT_FALSE(take());
  compute(1h, "a");
  for (int step = 0; step < 5; ++step) compute(100ms, "a");
  EXPECT_EQ(take()->ranks.at(0).step, 100ms);
}

TEST_F(PaceMeterTest, LongNamesAreCut) {
  for (int step = 0; step < 6; ++step) compute(100ms, std::string(1000, 'a'));
  EXPECT_EQ(take()->operations.at(0).name, std::string(200, 'a'));
}

}  // namespace
}  // namespace kolo::internal::diagnostics
