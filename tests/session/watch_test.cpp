// SPDX-License-Identifier: Apache-2.0
// The ranks that a report of a batch that does not move names.
#include "session/engine/watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo::internal::session {
namespace {

using namespace std::chrono_literals;
using negotiation::RankStatus;
using negotiation::Statuses;
using testing::HasSubstr;
using testing::Not;

/// Rank 0 shares memory with rank 1; ranks 2 and 3 are on other hosts.
class WatchedBatch : public testing::Test {
 protected:
  WatchedBatch() {
    settings_.stall_warning = 0s;
    settings_.stall_shutdown = 10s;
    board_.publish({.rank = 0}, start, start);
  }

  static RankStatus executing(int rank, int awaited) {
    return {.rank = rank,
            .state = ProcessState::alive,
            .batch = "batch 7",
            .awaits = "to exchange data",
            .awaited = RankSet::of(awaited)};
  }

  static PendingWait wait_for(const RankSet& awaited) {
    return {.what = "batch 7",
            .tensor = "x",
            .since = start,
            .awaited = awaited,
            .awaits = "to exchange data",
            .batch = Key{.name = "x"}};
  }

  /// The failure so long after the batch has moved.
  std::optional<Failure> check(Watch& watch, const PendingWait& wait, std::chrono::seconds after) {
    while (clock_.now() < start + after) static_cast<void>(clock_.advance(clock_.real() + 100ms));
    return watch.check({wait});
  }

  static constexpr SessionClock::TimePoint start{1h};
  Settings settings_{};
  SessionClock clock_{start};
  std::unique_ptr<node::StatusPage> page_ = std::make_unique<node::StatusPage>();
  StatusBoard board_{{{0, 1, page_.get(), nullptr}}, 0, 4};
};

TEST_F(WatchedBatch, TheRootAsksTheOtherHostsFirst) {
  std::optional<Statuses> answers;
  std::string asked;
  Watch root(board_, 0, settings_, clock_, [&](const Key& key) {
    asked = key.name;
    return answers ? &*answers : nullptr;
  });
  const PendingWait wait = wait_for(RankSet::range(2, 3));
  EXPECT_FALSE(check(root, wait, 9s));
  EXPECT_EQ(asked, "");
  EXPECT_FALSE(check(root, wait, 10s));
  EXPECT_EQ(asked, "x");
  answers = {{2, executing(2, 3)}};  // rank 3 is silent
  const std::optional<Failure> stall = check(root, wait, 10s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->ranks, RankSet::of(3));
  EXPECT_THAT(stall->message, HasSubstr("\n  rank 2: executing batch 7, which waits for rank 3"));
  EXPECT_THAT(stall->message, HasSubstr("\n  rank 3: no response from the rank or its host"));
}

TEST_F(WatchedBatch, ABatchThatWaitsForRanksThatWaitLeadsToTheStoppedRank) {
  const Statuses answers{
      {1, executing(1, 2)}, {2, executing(2, 3)}, {3, {.rank = 3, .state = ProcessState::stopped}}};
  Watch root(board_, 0, settings_, clock_, [&](const Key&) { return &answers; });
  const std::optional<Failure> stall = check(root, wait_for(RankSet::of(1)), 10s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->ranks, RankSet::of(3));
}

TEST_F(WatchedBatch, OtherRanksLeaveTheRootTimeToAsk) {
  Watch watch(board_, 0, settings_, clock_, {});
  const PendingWait wait = wait_for(RankSet::range(2, 3));
  EXPECT_FALSE(check(watch, wait, 11s));
  const std::optional<Failure> stall = check(watch, wait, 12s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->ranks, RankSet::range(2, 3));
  EXPECT_THAT(stall->message, Not(HasSubstr("no response")));  // nobody has asked them
}

TEST_F(WatchedBatch, AnAncestorThatDoesNotRespondIsBlamedAtOnce) {
  Watch watch(board_, 0, settings_, clock_, {});
  PendingWait wait = wait_for(RankSet::range(2, 3));
  wait.silent_ancestor = 2;
  const std::optional<Failure> stall = check(watch, wait, 10s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->ranks, RankSet::of(2));
  EXPECT_THAT(stall->message, HasSubstr("\n  rank 2: no response, it may be stopped"));
}

}  // namespace
}  // namespace kolo::internal::session
