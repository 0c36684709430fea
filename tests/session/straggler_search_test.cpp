// SPDX-License-Identifier: Apache-2.0
#include "session/pace/straggler_search.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

namespace kolo::internal::session {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

class StragglerSearchTest : public testing::Test {
 protected:
  /// The next window, half a second later, in which the ranks computed this long per step of 100
  /// ms.
  std::optional<Straggler> window(const std::vector<milliseconds>& computing) {
    steps_ += 5;
    now_ += 500ms;
    all_.ranks.clear();
    for (std::size_t rank = 0; rank < computing.size(); ++rank)
      all_.ranks.push_back({.rank = static_cast<int>(rank),
                            .steps = steps_,
                            .step = rank < 4 ? 100ms : 10ms,
                            .computing = computing[rank]});
    return search_.find(all_, now_);
  }

  StragglerSearch search_{10};
  PaceReport all_{.operations = {{.name = "a", .longest = 30ms, .slowest = 2, .sum = 120ms},
                                 {.name = "b", .longest = 25ms, .slowest = 2, .sum = 25ms},
                                 {.name = "c", .longest = 28ms, .slowest = 1, .sum = 28ms}}};
  std::uint64_t steps_ = 0;
  SessionClock::TimePoint now_{1h};
};

TEST_F(StragglerSearchTest, NamesTheRankAndTheOperationBeforeWhichItIsLate) {
  EXPECT_FALSE(window({50ms, 52ms, 71ms, 51ms}));
  EXPECT_FALSE(window({50ms, 52ms, 71ms, 51ms}));
  const std::optional<Straggler> found = window({50ms, 52ms, 71ms, 51ms});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->late, 20ms);
  EXPECT_EQ(found->step, 100ms);
  EXPECT_EQ(found->tensor, "b");  // before "a", all ranks compute long
  EXPECT_EQ(found->since_step, 5U);
  EXPECT_TRUE(window({50ms, 52ms, 71ms, 51ms}));
}

TEST_F(StragglerSearchTest, OneWindowProvesNothingHoweverOftenItIsSeen) {
  EXPECT_FALSE(window({50ms, 90ms}));
  for (int look = 0; look < 100; ++look) EXPECT_FALSE(search_.find(all_, now_ += 1s));
}

TEST_F(StragglerSearchTest, ManyWindowsInAMomentProveNothing) {
  for (int look = 0; look < 100; ++look) {
    now_ -= 499ms;
    EXPECT_EQ(window({50ms, 90ms}).has_value(), look >= 1000);
  }
}

TEST_F(StragglerSearchTest, RanksThatTakeTurnsAreNone) {
  for (int turn = 0; turn < 100; ++turn) {
    const bool first = turn / 2 % 2 == 0;
    EXPECT_FALSE(window({first ? 90ms : 50ms, first ? 50ms : 90ms, 50ms}));
  }
}

TEST_F(StragglerSearchTest, ARankThatCatchesUpIsNoneUntilItHasBeenLateAgain) {
  for (int i = 0; i < 3; ++i) static_cast<void>(window({50ms, 90ms}));
  EXPECT_FALSE(window({50ms, 50ms}));
  EXPECT_FALSE(window({50ms, 90ms}));
  EXPECT_FALSE(window({50ms, 90ms}));
  EXPECT_TRUE(window({50ms, 90ms}));
}

TEST_F(StragglerSearchTest, ALittleIsNotLate) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(window({50ms, 59ms}));
  search_ = StragglerSearch(0);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(window({10ms, 99ms}));
}

TEST_F(StragglerSearchTest, LessThanAMillisecondIsNotLate) {
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(window({0ms, 0ms}));
    for (RankPace& pace : all_.ranks) pace.step = 1ms;
    all_.ranks.back().computing = 900us;
    EXPECT_FALSE(search_.find(all_, now_));
  }
}

// Pipelines and process sets: the first four ranks make longer steps than the others.
TEST_F(StragglerSearchTest, OnlyRanksWithSimilarStepsAreCompared) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(window({90ms, 90ms, 90ms, 90ms, 9ms, 9ms}));
  std::optional<Straggler> found;
  for (int i = 0; i < 3; ++i) found = window({90ms, 90ms, 90ms, 90ms, 4ms, 9ms});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->late, 5ms);
}

TEST_F(StragglerSearchTest, OfTwoLateRanksTheOperationIsKnown) {
  all_.operations = {{.name = "a", .longest = 20ms, .slowest = 3, .sum = 40ms}};
  std::optional<Straggler> found;
  for (int i = 0; i < 3; ++i) found = window({50ms, 50ms, 71ms, 70ms});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->tensor, "a");
}

TEST_F(StragglerSearchTest, NoOperationIsNamedThatExplainsLittle) {
  all_.operations = {{.name = "a", .longest = 4ms, .slowest = 2, .sum = 4ms}};
  std::optional<Straggler> found;
  for (int i = 0; i < 3; ++i) found = window({50ms, 50ms, 70ms, 50ms});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensor, std::nullopt);
}

TEST_F(StragglerSearchTest, SaysWhyThereIsNone) {
  static_cast<void>(window({50ms, 50ms}));
  EXPECT_EQ(search_.in_words(all_), "no rank makes the others wait");
  all_.ranks.back().steps = 0;
  EXPECT_EQ(search_.in_words(all_), "no two ranks have made enough steps to compare them");
  EXPECT_EQ(StragglerSearch(0).in_words(all_),
            "stragglers are not looked for (straggler_warning is 0)");
}

TEST_F(StragglerSearchTest, RanksWithoutStepsAreNotCompared) {
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(window({50ms, 50ms}));
    all_.ranks.back().steps = 0;
    all_.ranks.back().computing = 0ms;
    EXPECT_FALSE(search_.find(all_, now_));
    all_.ranks.clear();
    EXPECT_FALSE(search_.find(all_, now_));
  }
}

}  // namespace
}  // namespace kolo::internal::session
