// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace kolo::internal {
namespace {

/// The text that `write` prints on standard error.
template <typename Function>
std::string written_by(Function write) {
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

class Log : public testing::Test {
 protected:
  void TearDown() override { set_log_level(LogLevel::warning); }
};

TEST_F(Log, NamesLevelAndRank) {
  EXPECT_EQ(written_by([] { warn("early"); }), "[kolo] warning: early\n");
  set_log_rank(1);
  EXPECT_EQ(written_by([] { warn("100% {} of it"); }), "[kolo rank 1] warning: 100% {} of it\n");
  EXPECT_EQ(written_by([] { log(LogLevel::critical, "over"); }), "[kolo rank 1] critical: over\n");
}

TEST_F(Log, WritesOnlyWhatIsUrgentEnough) {
  EXPECT_EQ(written_by([] { info("at first only warnings"); }), "");
  set_log_level(LogLevel::trace);
  EXPECT_NE(written_by([] { log(LogLevel::trace, "all"); }), "");
  set_log_level(LogLevel::off);
  EXPECT_EQ(written_by([] { log(LogLevel::critical, "none"); }), "");
}

TEST_F(Log, LevelsAreParsedInAnyCase) {
  EXPECT_EQ(parse_log_level("trace"), LogLevel::trace);
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("Info"), LogLevel::info);
  EXPECT_EQ(parse_log_level("WARNING"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("error"), LogLevel::error);
  EXPECT_EQ(parse_log_level("critical"), LogLevel::critical);
  EXPECT_EQ(parse_log_level("fatal"), LogLevel::critical);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  for (const char* text : {"", "loud", "warning ", "2"})
    EXPECT_EQ(parse_log_level(text), std::nullopt) << text;
}

TEST(LogLimit, AdmitsSoManyOfEachKindInAWindow) {
  const std::chrono::steady_clock::time_point begin{};
  LogLimit limit;
  for (int i = 0; i < LogLimit::max_in_window; ++i) EXPECT_TRUE(limit.admits("storm", begin));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(limit.admits("storm", begin + LogLimit::window / 2));
  EXPECT_TRUE(limit.admits("another", begin + LogLimit::window / 2));
  EXPECT_TRUE(limit.admits("storm", begin + LogLimit::window));
  EXPECT_EQ(limit.take_suppressed("storm"), 3U);
  EXPECT_EQ(limit.take_suppressed("storm"), 0U);
  EXPECT_EQ(limit.take_suppressed("another"), 0U);
}

TEST_F(Log, SaysHowManyWereNotWritten) {
  set_log_rank(1);
  constexpr int more = 5;
  const std::string written = written_by([] {
    for (int i = 0; i < LogLimit::max_in_window + more; ++i)
      log_limited(LogLevel::warning, "messages of a test", "again");
    write_suppressed();
    write_suppressed();
  });
  std::string expected;
  for (int i = 0; i < LogLimit::max_in_window; ++i) expected += "[kolo rank 1] warning: again\n";
  EXPECT_EQ(written,
            expected + "[kolo rank 1] warning: 5 more messages of a test were not written\n");
}

}  // namespace
}  // namespace kolo::internal
