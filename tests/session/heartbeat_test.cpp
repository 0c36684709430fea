// SPDX-License-Identifier: Apache-2.0
#include "session/engine/heartbeat.hpp"

#include <gtest/gtest.h>

namespace kolo::internal::session {
namespace {

using namespace std::chrono_literals;
using negotiation::Heartbeat;
using TimePoint = HeartbeatMonitor::TimePoint;

constexpr TimePoint start{std::chrono::hours(1)};

/// The monitor of a rank below rank 3.
HeartbeatMonitor below(std::chrono::nanoseconds warning = 60s,
                       std::chrono::nanoseconds shutdown = 0s) {
  return {3, {.stall_warning = warning, .stall_shutdown = shutdown}, start};
}

TEST(Heartbeat, IsSentOnceInAnInterval) {
  HeartbeatMonitor root(-1, {}, start);
  EXPECT_EQ(root.next(start, start), (Heartbeat{-1, 1s}));
  EXPECT_FALSE(root.next(start, start));
  EXPECT_FALSE(root.next(start + 1s - 1ns, start + 1s - 1ns));
  EXPECT_TRUE(root.next(start + 1s, start + 1s));
  EXPECT_FALSE(root.next(start + 1500ms, start + 1500ms));
}

TEST(Heartbeat, IsNotDelayedByPausesOfThisProcess) {
  HeartbeatMonitor root(-1, {}, start);
  EXPECT_TRUE(root.next(start, start));
  EXPECT_TRUE(root.next(start + 250ms, start + 1s));
}

TEST(Heartbeat, ComesOftenEnoughForTheShortestLimit) {
  struct Case {
    std::chrono::nanoseconds warning, shutdown, interval;
  };
  for (const auto& [warning, shutdown, interval] :
       {Case{0s, 0s, 1s}, Case{60s, 600s, 1s}, Case{3s, 0s, 500ms}, Case{0s, 600ms, 100ms},
        Case{3s, 1200ms, 200ms}, Case{1200ms, 3s, 200ms}})
    EXPECT_EQ(HeartbeatMonitor(-1, {.stall_warning = warning, .stall_shutdown = shutdown}, start)
                  .next(start, start)
                  ->interval,
              interval);
}

TEST(Heartbeat, ARankThatMissesThreeBeatsIsSilentSinceItsLast) {
  HeartbeatMonitor heartbeat = below();
  heartbeat.receive({-1, 100ms}, start + 5s);
  EXPECT_FALSE(heartbeat.silence(start + 5300ms));
  const auto silence = heartbeat.silence(start + 5301ms);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 3);
  EXPECT_EQ(silence->since, start + 5s);
  heartbeat.receive({-1, 100ms}, start + 6s);
  EXPECT_FALSE(heartbeat.silence(start + 6s));
}

TEST(Heartbeat, ARankThatNeverSaidAnythingIsSilentSinceTheBeginning) {
  const HeartbeatMonitor heartbeat = below();
  EXPECT_FALSE(heartbeat.silence(start + 3s));
  const auto silence = heartbeat.silence(start + 3001ms);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 3);
  EXPECT_EQ(silence->since, start);
}

TEST(Heartbeat, WhoIsSilentFurtherUpIsPassedOn) {
  HeartbeatMonitor heartbeat = below();
  heartbeat.receive({-1, 1s}, start);
  EXPECT_EQ(heartbeat.next(start, start)->unresponsive_ancestor, -1);
  heartbeat.receive({0, 1s}, start + 1s);
  heartbeat.receive({0, 1s}, start + 2s);
  const auto silence = heartbeat.silence(start + 2s);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 0);
  EXPECT_EQ(silence->since, start + 1s);
  EXPECT_EQ(heartbeat.next(start + 2s, start + 2s)->unresponsive_ancestor, 0);
  heartbeat.receive({-1, 1s}, start + 3s);
  EXPECT_FALSE(heartbeat.silence(start + 3s));
  EXPECT_EQ(heartbeat.next(start + 3s, start + 3s)->unresponsive_ancestor, -1);
  // The rank above itself is nearer than whom it spoke of.
  heartbeat.receive({0, 1s}, start + 4s);
  EXPECT_EQ(heartbeat.next(start + 8s, start + 8s)->unresponsive_ancestor, 3);
}

TEST(Heartbeat, WhereMemoryShowsTheRankAboveNobodyIsSilent) {
  EXPECT_FALSE(HeartbeatMonitor(-1, {}, start).silence(start + 1000s));
}

}  // namespace
}  // namespace kolo::internal::session
