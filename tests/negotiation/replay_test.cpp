// SPDX-License-Identifier: Apache-2.0
// One plan on a few ranks: every schedule of short plans, and random schedules in which ranks act
// between each other's reads of the board.
#include "negotiation/replay/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "plan_of.hpp"

namespace kolo::internal::negotiation {
namespace {

using namespace std::chrono_literals;

/// The script of a rank: it submits the plan's operations repeatedly, `submissions` in total, and
/// then stops, unless it never does.
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
    if (std::optional<Execute> upcoming = rank.replay.take_upcoming())
      rank.upcoming.push_back(*std::move(upcoming));
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
      for (std::size_t i = 0; i < end; ++i) {
        EXPECT_EQ(rank->executed[i].sequence, first_sequence + i);
        EXPECT_EQ(rank->executed[i].mark, ranks_.front()->executed[i].mark);
        if (i > 0) {
          EXPECT_GT(rank->executed[i].mark, rank->executed[i - 1].mark);
        }
      }
      check_upcoming(*rank, end);
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
    std::vector<Execute> upcoming{};
    std::vector<int> answered{};  // tickets, which are the numbers of the submissions
  };

  /// Each was the next batch to run, or the plan ended before it.
  static void check_upcoming(const Rank& rank, std::uint64_t end) {
    std::uint64_t last = 0;
    for (const Execute& upcoming : rank.upcoming) {
      EXPECT_GT(upcoming.mark, last) << "it came twice";
      last = upcoming.mark;
      const std::uint64_t position = upcoming.sequence - first_sequence;
      if (position == end) continue;
      ASSERT_LT(position, end);
      EXPECT_EQ(upcoming.mark, rank.executed[position].mark);
      EXPECT_EQ(upcoming.tickets, rank.executed[position].tickets);
    }
  }

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

}  // namespace
}  // namespace kolo::internal::negotiation
