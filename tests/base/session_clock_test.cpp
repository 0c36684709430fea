// SPDX-License-Identifier: Apache-2.0
// The clock by which a rank judges others leaves out the rank's own pauses.
#include "base/session_clock.hpp"

#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

using namespace std::chrono_literals;

constexpr SessionClock::TimePoint start{1000s};

TEST(SessionClock, GoesWithTheSteadyClockWhilePassesAreMade) {
  SessionClock clock(start);
  for (int pass = 1; pass <= 100; ++pass) {
    EXPECT_EQ(clock.advance(start + pass * 100ms), 0ns);
    EXPECT_EQ(clock.now(), start + pass * 100ms);
  }
  EXPECT_EQ(clock.to_real(start + 11s), start + 11s);
}

TEST(SessionClock, LeavesOutWhatIsTooLongForAPass) {
  SessionClock clock(start);
  EXPECT_EQ(clock.advance(start + 1h), 1h - SessionClock::max_step);
  EXPECT_EQ(clock.now(), start + SessionClock::max_step);
  EXPECT_EQ(clock.real(), start + 1h);
  EXPECT_EQ(clock.advance(start + 1h + 100ms), 0ns);
  EXPECT_EQ(clock.now(), start + SessionClock::max_step + 100ms);
  EXPECT_EQ(clock.to_real(clock.now() + 5s), start + 1h + 5100ms);
}

TEST(SessionClock, IsSlowButDoesNotStandWithoutEnoughProcessorTime) {
  SessionClock clock(start);
  for (int pass = 1; pass <= 100; ++pass) static_cast<void>(clock.advance(start + pass * 1s));
  EXPECT_EQ(clock.now(), start + 100 * SessionClock::max_step);
}

TEST(PatientDeadline, IsPutOffByPauses) {
  PatientDeadline deadline(10s, start);
  EXPECT_EQ(deadline.left(start + 200ms), 9800ms);
  // The process was stopped for an hour, of which no more than a pass counts.
  EXPECT_EQ(deadline.left(start + 1h), 9550ms);
  for (int turn = 1; turn <= 50; ++turn)
    static_cast<void>(deadline.left(start + 1h + turn * PatientDeadline::max_turn));
  EXPECT_EQ(deadline.left(start + 1h + 51 * PatientDeadline::max_turn), 0ns);
}

}  // namespace
}  // namespace kolo::internal
