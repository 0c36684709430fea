// SPDX-License-Identifier: Apache-2.0
// One rank's part of a plan.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "negotiation/replay/replay.hpp"
#include "negotiation/wire/codec.hpp"
#include "plan_of.hpp"

namespace kolo::internal::negotiation {
namespace {

using namespace std::chrono_literals;

/// One rank whose only peer is what the test says.
class Alone : public testing::Test, public PlanBoard {
 protected:
  void publish(std::uint64_t word, Urgency) override { own_ = to_plan_progress(word); }
  [[nodiscard]] std::uint64_t read(int /*rank*/) const override { return to_word(peer_); }

  void begin(const PlanEntry& entry) { replay_.begin(entry, 1, now_); }
  void submit(const std::string& name, const Descriptor& descriptor = {}) {
    replay_.submit(next_ticket_++, {.name = name}, descriptor, now_);
  }
  void poll() { replay_.poll(now_, 8, executed_); }

  PlanProgress own_{};
  PlanProgress peer_{.epoch = 1};
  TimePoint now_{};
  Replay replay_{{this, 0, 2, 1s}};
  std::vector<Execute> executed_{};
  Ticket next_ticket_ = 0;
};

TEST_F(Alone, ABatchIsPublishedWhenItIsWhole) {
  begin(plan_of({2, 1}));
  submit("1");
  submit("2");
  poll();
  EXPECT_EQ(own_, PlanProgress{});  // nothing was said yet
  submit("0");
  poll();
  EXPECT_EQ(own_, (PlanProgress{1, 2, false}));
  EXPECT_TRUE(replay_.awaits_others());
  EXPECT_TRUE(executed_.empty());
  peer_.position = 1;
  poll();
  ASSERT_EQ(executed_.size(), 1U);
  EXPECT_EQ(executed_.front().tickets, (std::vector<Ticket>{2, 0}));
}

TEST_F(Alone, TheNextBatchIsUpcomingOnceWhileOthersAreAwaited) {
  begin(plan_of({2, 1}));
  submit("0");
  submit("2");
  poll();
  EXPECT_EQ(replay_.take_upcoming(), std::nullopt) << "this rank is not ready";
  submit("1");
  poll();
  const std::optional<Execute> first = replay_.take_upcoming();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tickets, (std::vector<Ticket>{0, 2}));
  EXPECT_EQ(first->mark, replay_.next_mark());
  poll();
  EXPECT_EQ(replay_.take_upcoming(), std::nullopt) << "it came before";
  peer_.position = 1;
  poll();
  ASSERT_EQ(executed_.size(), 1U);
  EXPECT_EQ(executed_.front().mark, first->mark);
  const std::optional<Execute> second = replay_.take_upcoming();
  ASSERT_TRUE(second);
  EXPECT_GT(second->mark, first->mark);
  EXPECT_EQ(second->sequence, first->sequence + 1);
  peer_.stopped = true;
  poll();
  EXPECT_TRUE(replay_.over());
  EXPECT_EQ(replay_.end().size(), 1U);
  EXPECT_EQ(replay_.next_mark(), 0U);
}

TEST_F(Alone, NothingIsUpcomingOnceItStops) {
  begin(plan_of({1}));
  submit("0");
  replay_.stop();
  poll();
  EXPECT_TRUE(own_.stopped);
  EXPECT_EQ(replay_.take_upcoming(), std::nullopt);
}

TEST_F(Alone, WhatIsNotThePlansStopsItAtTheNextPosition) {
  const auto stops = [&](const std::function<void()>& act) {
    replay_ = Replay({this, 0, 2, 1s});
    peer_ = {.epoch = 1};
    begin(plan_of({1, 1}));
    submit("0");
    poll();
    EXPECT_EQ(own_, (PlanProgress{1, 1, false}));
    act();
    poll();
    EXPECT_EQ(own_, (PlanProgress{1, 1, true}));
    EXPECT_EQ(replay_.over(), peer_.stopped);
    peer_ = {1, 2, true};
    poll();
    EXPECT_TRUE(replay_.over());
    EXPECT_EQ(replay_.ran(), 1U);
  };
  stops([&] { submit("other"); });
  stops([&] { submit("1", {.op = ReduceOp::max}); });
  stops([&] { replay_.submit(9, {.name = "1", .set = 3}, {}, now_); });
  stops([&] { replay_.submit(9, {.number = 1}, {}, now_); });
  stops([&] { replay_.submit(9, {.number = join_number}, {}, now_); });
  stops([&] { replay_.stop(); });
  stops([&] { peer_ = {1, 1, true}; });
}

TEST_F(Alone, AnIncompleteBatchIsGivenUpAfterAWhile) {
  begin(plan_of({2}));
  EXPECT_EQ(replay_.deadline(), TimePoint::max());
  now_ += 1h;
  submit("0");
  poll();
  const TimePoint deadline = replay_.deadline();
  EXPECT_LE(deadline, now_ + 1s);
  EXPECT_GE(deadline, now_ + 10ms);
  now_ = deadline - 1ns;
  poll();
  EXPECT_FALSE(replay_.stopping());
  now_ = deadline;
  poll();
  EXPECT_TRUE(own_.stopped);
  EXPECT_EQ(replay_.deadline(), TimePoint::max());
}

TEST_F(Alone, HowLongABatchUsuallyTakesIsLearned) {
  begin(plan_of({2}));
  const auto pass = [&](std::chrono::nanoseconds gap) {
    submit("0");
    poll();
    const auto patience = replay_.deadline() - now_;
    now_ += gap;
    submit("1");
    poll();
    ++peer_.position;
    poll();
    EXPECT_FALSE(replay_.stopping());
    return patience;
  };
  for (int i = 0; i < 100; ++i) pass(0ms);
  EXPECT_EQ(pass(9ms), 10ms);
  EXPECT_EQ(pass(9ms), 36ms);
  EXPECT_EQ(pass(20ms), 36ms);
  EXPECT_EQ(pass(0ms), 80ms);
}

TEST_F(Alone, APeerThatDoesNotComeIsWaitedForInNegotiation) {
  begin(plan_of({1}));
  submit("0");
  poll();
  EXPECT_EQ(replay_.deadline(), now_ + 1s);
  now_ += 1s;
  poll();
  EXPECT_TRUE(own_.stopped);
}

TEST_F(Alone, APeerThatHasNotReadOfThePlanHasNotStopped) {
  peer_ = {0, 0, false};
  begin(plan_of({1}));
  replay_.stop();
  poll();
  EXPECT_FALSE(replay_.over());
  peer_ = {1, 0, true};
  poll();
  EXPECT_TRUE(replay_.over());
  static_cast<void>(replay_.end());
  begin(plan_of({1}, 2));  // the peer still stands in the first
  submit("0");
  poll();
  EXPECT_TRUE(executed_.empty());
  EXPECT_FALSE(replay_.stopping());
}

TEST_F(Alone, NumbersAndStepsGoOn) {
  Descriptor with_step;
  with_step.step = 7;
  begin(
      {1, {{{{.number = 4}, {}, 2, 0}, {{.name = "g"}, with_step, 0, 1}, {{.number = 5}, {}, 2}}}});
  for (std::uint64_t pass = 0; pass < 5; ++pass) {
    replay_.submit(0, {.number = 4 + 2 * pass}, {}, now_);
    replay_.submit(1, {.number = 5 + 2 * pass}, {}, now_);
    with_step.step = 7 + static_cast<std::int64_t>(pass);
    submit("g", with_step);
    peer_.position = pass + 1;
    poll();
    EXPECT_EQ(executed_.size(), pass + 1);
  }
  submit("g", with_step);  // with the descriptor of the previous step
  poll();
  EXPECT_TRUE(own_.stopped);
}

TEST_F(Alone, AVersionStandsForTheKeyAndTheDescriptorButNotForTheStep) {
  constexpr std::uint64_t version = 3;
  const Descriptor strange{.op = ReduceOp::max, .step = 1};
  begin({1, {{{{.name = "g"}, {}, 0, 1}}}});
  const auto submit_version = [&](const std::string& name, const Descriptor& descriptor) {
    replay_.submit(0, {.name = name}, descriptor, now_, version);
    poll();
  };
  submit_version("g", {});
  peer_.position = 1;
  poll();
  submit_version("not looked at", strange);
  EXPECT_FALSE(own_.stopped);
  EXPECT_EQ(own_.position, 2U);
  peer_.position = 2;
  poll();
  EXPECT_EQ(executed_.size(), 2U);
  submit_version("g", {.step = 1});  // with the descriptor of the previous step
  EXPECT_TRUE(own_.stopped);
}

TEST_F(Alone, WhatIsWithdrawnHasItsStep) {
  begin({1, {{{{.name = "a"}, {}, 0, 2}, {{.name = "b"}, {}, 0, 2}}}});
  constexpr std::uint64_t versions = 7;
  for (std::int64_t pass = 0; pass < 3; ++pass) {
    replay_.submit(0, {.name = "a"}, {.step = 2 * pass}, now_, versions);
    if (pass < 2) replay_.submit(1, {.name = "b"}, {.step = 2 * pass}, now_, versions + 1);
    peer_.position = static_cast<std::uint64_t>(pass) + 1;
    poll();
  }
  EXPECT_EQ(executed_.size(), 2U);
  const std::vector<Withdrawn> withdrawn = replay_.end();
  ASSERT_EQ(withdrawn.size(), 1U);
  EXPECT_EQ(withdrawn.front().key.name, "a");
  EXPECT_EQ(withdrawn.front().descriptor.step, 4);
}

TEST_F(Alone, EndsBeforeItsPositionLeavesTheWord) {
  replay_ = Replay({this, 0, 2, 1s, 3});
  begin(plan_of({1}));
  for (std::uint64_t position = 1; position <= 3; ++position) {
    submit("0");
    poll();
    EXPECT_EQ(own_, (PlanProgress{1, position, position == 3}));
    peer_.position = position;
    poll();
    EXPECT_EQ(replay_.ran(), position);
  }
  submit("0");
  peer_.stopped = true;
  poll();
  EXPECT_TRUE(replay_.over());
  EXPECT_EQ(replay_.end().size(), 1U) << "it returns to negotiation";
}

TEST_F(Alone, RefusesPlansThatAreNone) {
  EXPECT_THROW(begin({1, {}}), ProtocolError);
  EXPECT_THROW(begin({1, {{}}}), ProtocolError);
  PlanEntry twice = plan_of({1});
  twice.batches.push_back(twice.batches.front());
  EXPECT_THROW(begin(twice), ProtocolError);
  Replay without({nullptr, 0, 2, 1s});
  EXPECT_THROW(without.begin(plan_of({1}), 1, now_), ProtocolError);
}

TEST(Board, AWordHoldsAStanding) {
  for (const PlanProgress& standing :
       {PlanProgress{}, PlanProgress{1, 0, true}, PlanProgress{last_epoch, 5, false},
        PlanProgress{3, last_position, true}})
    EXPECT_EQ(to_plan_progress(to_word(standing)), standing);
}

}  // namespace
}  // namespace kolo::internal::negotiation
