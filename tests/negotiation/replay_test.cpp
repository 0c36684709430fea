// SPDX-License-Identifier: Apache-2.0
// One plan on a few ranks: every schedule of short ones, and random ones in which ranks also come
// between each other's looks at the board.
#include "negotiation/replay/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

using namespace std::chrono_literals;

/// Batches of operations "0", "1", ..., so many in each.
PlanEntry plan_of(const std::vector<int>& batches, std::uint64_t epoch = 1) {
  PlanEntry entry{epoch, {}, 20ms};
  int next = 0;
  for (const int count : batches) {
    std::vector<PlanItem>& batch = entry.batches.emplace_back();
    for (int i = 0; i < count; ++i) batch.push_back({{.name = std::to_string(next++)}, {}});
  }
  return entry;
}

/// What a rank does: it submits the plan's operations over and over, `submissions` in all, and then
/// stops, unless it never does.
struct Script {
  int submissions = 0;
  bool stops = true;
};

class World {
 public:
  static constexpr std::uint64_t first_sequence = 100;

  World(const PlanEntry& entry, const std::vector<Script>& scripts)
      : words_(scripts.size()), scripts_(scripts) {
    for (const auto& batch : entry.batches) operations_ += static_cast<int>(batch.size());
    for (std::size_t i = 0; i < scripts.size(); ++i) {
      Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>(*this, i));
      rank.replay.begin(entry, first_sequence, now_);
    }
  }

  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  /// Called before each look at another's word.
  void on_read(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }

  /// The rank does the next thing of its script, if it can, and polls.
  void act(std::size_t place) {
    Rank& rank = *ranks_[place];
    if (rank.busy || rank.replay.over()) return;
    rank.busy = true;
    const bool moved = follow_script(rank, scripts_[place]);
    const std::size_t before = rank.executed.size();
    const std::uint64_t word = words_[place];
    rank.replay.poll(now_, 2, rank.executed);
    for (std::size_t i = before; i < rank.executed.size(); ++i)
      for (const Ticket ticket : rank.executed[i].tickets)
        rank.answered.push_back(static_cast<int>(ticket));
    rank.busy = false;
    if (moved || word != words_[place] || rank.executed.size() != before || rank.replay.over())
      ++moves_;
  }

  /// Until the plan is over on all ranks. If all wait for each other, one gives the plan up.
  void settle() {
    for (;;) {
      const int before = moves_;
      for (std::size_t i = 0; i < size(); ++i) act(i);
      if (std::ranges::all_of(ranks_, [](const auto& rank) { return rank->replay.over(); })) return;
      if (moves_ != before) continue;
      ASSERT_FALSE(given_up_);
      given_up_ = true;
      ranks_.back()->replay.stop();
    }
  }

  /// All ranks have ended at the same place, at most where the first stopped, and every submission
  /// was either executed or given back, in order.
  void check() {
    const std::uint64_t end = ranks_.front()->replay.ran();
    for (const auto& rank : ranks_) {
      EXPECT_TRUE(rank->replay.over());
      EXPECT_EQ(rank->replay.ran(), end);
      ASSERT_EQ(rank->executed.size(), end);
      for (std::size_t i = 0; i < end; ++i)
        EXPECT_EQ(rank->executed[i].sequence, first_sequence + i);
      std::vector<int> all = rank->answered;
      int last = -1;
      for (const Withdrawn& one : rank->replay.end()) {
        const int ticket = static_cast<int>(one.ticket);
        EXPECT_EQ(one.key.name, std::to_string(ticket % operations_));
        EXPECT_GT(ticket, last);
        last = ticket;
        all.push_back(ticket);
      }
      EXPECT_FALSE(rank->replay.live());
      EXPECT_FALSE(rank->replay.pending());
      std::vector<int> submitted(static_cast<std::size_t>(rank->submitted));
      std::iota(submitted.begin(), submitted.end(), 0);
      std::ranges::sort(all);
      EXPECT_EQ(all, submitted);
    }
  }

 private:
  class Board : public negotiation::PlanBoard {
   public:
    Board(World& world, std::size_t place) : world_(world), place_(place) {}
    void publish(std::uint64_t word, Urgency) override {
      const PlanProgress before = to_plan_progress(world_.words_[place_]);
      const PlanProgress after = to_plan_progress(word);
      EXPECT_FALSE(before.stopped);
      EXPECT_GE(after.position, before.position);
      world_.words_[place_] = word;
    }
    [[nodiscard]] std::uint64_t read(int rank) const override {
      if (world_.meanwhile_) world_.meanwhile_();
      return world_.words_[static_cast<std::size_t>(rank)];
    }

   private:
    World& world_;
    std::size_t place_;
  };

  struct Rank {
    Rank(World& world, std::size_t place)
        : board(world, place),
          replay({&board, static_cast<int>(place), static_cast<int>(world.scripts_.size()), 1s}) {}

    Board board;
    Replay replay;
    int submitted = 0;
    bool stopped = false;
    bool busy = false;
    std::vector<Execute> executed{};
    std::vector<int> answered{};  // tickets, which are the numbers of the submissions
  };

  bool follow_script(Rank& rank, const Script& script) {
    if (rank.submitted == script.submissions) {
      if (!script.stops || rank.stopped) return false;
      rank.stopped = true;
      rank.replay.stop();
      return true;
    }
    const int earlier = rank.submitted - operations_;  // the last with the same key
    if (earlier >= 0 && std::ranges::find(rank.answered, earlier) == rank.answered.end())
      return false;
    rank.replay.submit(static_cast<Ticket>(rank.submitted),
                       {.name = std::to_string(rank.submitted % operations_)}, {}, now_);
    ++rank.submitted;
    return true;
  }

  std::vector<std::uint64_t> words_;
  std::vector<Script> scripts_;
  std::vector<std::unique_ptr<Rank>> ranks_{};
  std::function<void()> meanwhile_{};
  int operations_ = 0;
  int moves_ = 0;
  bool given_up_ = false;
  TimePoint now_{};
};

/// Calls `test(schedule)` for every order of so many events of each rank.
void for_all_schedules(std::vector<int> events, std::vector<std::size_t>& schedule,
                       const std::function<void(const std::vector<std::size_t>&)>& test) {
  bool any = false;
  for (std::size_t rank = 0; rank < events.size(); ++rank) {
    if (events[rank] == 0) continue;
    any = true;
    --events[rank];
    schedule.push_back(rank);
    for_all_schedules(events, schedule, test);
    schedule.pop_back();
    ++events[rank];
  }
  if (!any) test(schedule);
}

void try_all_schedules(const PlanEntry& entry, const std::vector<Script>& scripts) {
  std::vector<int> events;
  for (const Script& script : scripts) events.push_back(script.submissions + 1);
  std::vector<std::size_t> schedule;
  for_all_schedules(events, schedule, [&](const std::vector<std::size_t>& order) {
    if (testing::Test::HasFailure()) return;
    SCOPED_TRACE(testing::PrintToString(order));
    World world(entry, scripts);
    for (const std::size_t rank : order) world.act(rank);
    world.settle();
    world.check();
  });
}

TEST(Replay, TwoRanksThatStopAnywhereInEverySchedule) {
  const PlanEntry entry = plan_of({2, 1});
  for (int first = 0; first <= 7; ++first) {
    for (int second = 0; second <= 7; ++second) {
      SCOPED_TRACE(testing::Message() << "stops after " << first << " and " << second);
      try_all_schedules(entry, {{first}, {second}});
      try_all_schedules(entry, {{first}, {second, false}});
    }
  }
}

TEST(Replay, ThreeRanksThatStopAnywhereInEverySchedule) {
  const PlanEntry entry = plan_of({1, 1});
  for (int first = 0; first <= 3; ++first)
    for (int second = 0; second <= 3; ++second)
      for (int third = 0; third <= 3; ++third) {
        SCOPED_TRACE(testing::Message() << first << ' ' << second << ' ' << third);
        try_all_schedules(entry, {{first}, {second}, {third, third == 1}});
      }
}

TEST(Replay, RanksThatComeBetweenEachOthersLooks) {
  for (std::uint64_t seed = 0; seed < 20000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<int> batches(1 + random() % 4);
    for (int& count : batches) count = 1 + static_cast<int>(random() % 3);
    std::vector<Script> scripts(2 + random() % 5);
    for (Script& script : scripts) script = {static_cast<int>(random() % 25), random() % 3 == 0};
    scripts[random() % scripts.size()].stops = true;
    World world(plan_of(batches), scripts);
    world.on_read([&] {
      while (random() % 3 == 0) world.act(random() % world.size());
    });
    for (int i = 0; i < 60; ++i) world.act(random() % world.size());
    world.settle();
    world.check();
  }
}

TEST(Replay, GoesOnAsLongAsNobodyStops) {
  constexpr int passes = 50;
  World world(plan_of({3, 1, 2}), {{6 * passes, false}, {6 * passes}, {6 * passes, false}});
  world.settle();
  world.check();
}

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
  submit("g", with_step);  // of the last step
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
  submit_version("g", {.step = 1});  // of the last step
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
