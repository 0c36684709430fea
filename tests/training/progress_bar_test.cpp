// SPDX-License-Identifier: Apache-2.0
// Progress bars without a terminal, because GoogleTest captures standard error in a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kolo/training.hpp"

namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string printed_by_steps(const kolo::ProgressBarOptions& options, std::int64_t steps) {
  testing::internal::CaptureStderr();
  {
    kolo::ProgressBar bar(options);
    for (std::int64_t done = 1; done <= steps; ++done) {
      bar.update(done, "loss " + std::to_string(done));
    }
  }
  return testing::internal::GetCapturedStderr();
}

std::ptrdiff_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(ProgressBar, ALineEveryTenth) {
  const std::string text = printed_by_steps({.title = "epoch 1", .total = 1000}, 1000);
  EXPECT_EQ(lines(text), 10);
  EXPECT_THAT(text, StartsWith("epoch 1  10% 100/1000 "));
  EXPECT_THAT(text, HasSubstr("epoch 1  50% 500/1000 "));
  EXPECT_THAT(text, HasSubstr("epoch 1 100% 1000/1000 "));
  EXPECT_THAT(text, EndsWith("loss 1000\n"));
}

TEST(ProgressBar, FewStepsGiveALineEach) { EXPECT_EQ(lines(printed_by_steps({.total = 3}, 3)), 3); }

TEST(ProgressBar, StepsBeyondTheTotalAddNothing) {
  EXPECT_EQ(lines(printed_by_steps({.total = 10}, 25)), 10);
}

TEST(ProgressBar, DisabledIsSilent) {
  EXPECT_EQ(printed_by_steps({.title = "quiet", .total = 10, .enabled = false}, 10), "");
}

TEST(ProgressBar, NothingToDoIsSilent) { EXPECT_EQ(printed_by_steps({.title = "none"}, 3), ""); }

TEST(ProgressBar, AfterFinishNothingIsPrinted) {
  testing::internal::CaptureStderr();
  kolo::ProgressBar bar({.total = 2});
  bar.finish();
  bar.update(2);
  bar.finish();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
