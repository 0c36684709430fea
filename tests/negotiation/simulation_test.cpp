// SPDX-License-Identifier: Apache-2.0
// Agreement under random schedules. Every test prints its seed when it fails.
#include "simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace kolo::internal::test {
namespace {

std::vector<int> random_nodes(std::mt19937_64& random, int ranks) {
  std::vector<int> node_of(static_cast<std::size_t>(ranks));
  const int nodes = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
  for (int& node : node_of) node = static_cast<int>(random() % static_cast<std::uint64_t>(nodes));
  return node_of;
}

Simulation::Options random_options(std::uint64_t seed, int max_ranks) {
  std::mt19937_64 random(seed);
  Simulation::Options options;
  const int ranks = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(max_ranks));
  options.node_of = random_nodes(random, ranks);
  options.seed = seed;
  options.arity = 1 + static_cast<int>(random() % 4);
  options.fusion_threshold = std::int64_t{1} << (random() % 16);
  options.cache_capacity = static_cast<std::int64_t>(random() % 24);
  return options;
}

/// Each rank submits every key once, in an order of its own.
void submit_round(Simulation& simulation, int keys,
                  const std::function<Descriptor(int rank, int key)>& descriptor) {
  std::vector<int> order(static_cast<std::size_t>(keys));
  std::iota(order.begin(), order.end(), 0);
  for (int rank = 0; rank < simulation.ranks(); ++rank) {
    std::shuffle(order.begin(), order.end(), simulation.random());
    for (const int key : order)
      simulation.submit(rank, {.name = "key" + std::to_string(key)}, descriptor(rank, key));
  }
}

TEST(Simulation, AllRanksExecuteTheSameLog) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(random_options(seed, 24));
    constexpr int keys = 12;
    constexpr int rounds = 4;
    for (int round = 0; round < rounds; ++round)
      submit_round(simulation, keys, [&](int, int key) { return floats(1 + key * round); });
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      ASSERT_EQ(simulation.outcomes(rank).size(), keys * rounds);
      for (const Outcome& outcome : simulation.outcomes(rank)) EXPECT_TRUE(outcome.batch);
    }
    if (HasFailure()) return;
  }
}

TEST(Simulation, UnnamedOperationsAreMatchedByOrder) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(random_options(seed, 16));
    for (int rank = 0; rank < simulation.ranks(); ++rank)
      for (std::uint64_t number = 0; number < 10; ++number)
        simulation.submit(rank, {.number = number}, floats(static_cast<std::int64_t>(number)));
    simulation.run();
    expect_consistent(simulation);
    for (const Outcome& outcome : simulation.outcomes(0)) EXPECT_TRUE(outcome.batch);
    if (HasFailure()) return;
  }
}

TEST(Simulation, ADisagreementFailsOnEveryRankAndNothingElseDoes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Simulation::Options options = random_options(seed, 24);
    Simulation simulation(options);
    const int ranks = simulation.ranks();
    if (ranks == 1) continue;
    constexpr int keys = 8;
    std::set<std::pair<int, int>> odd;  // (round, key) with a disagreement
    for (int round = 0; round < 4; ++round) {
      const int odd_key = static_cast<int>(simulation.random()() % keys);
      const int odd_rank = static_cast<int>(simulation.random()() % static_cast<unsigned>(ranks));
      odd.insert({round, odd_key});
      submit_round(simulation, keys, [&](int rank, int key) {
        return floats(key == odd_key && rank == odd_rank ? 1000 : 7);
      });
    }
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < ranks; ++rank) {
      std::map<std::string, int> round_of;  // a rank submits each key once per round, in order
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        const int round = round_of[outcome.key.name]++;
        const bool disagreed = odd.contains({round, std::stoi(outcome.key.name.substr(3))});
        ASSERT_EQ(outcome.failure.has_value(), disagreed) << outcome.key.name << " round " << round;
        if (!disagreed) continue;
        EXPECT_EQ(outcome.failure->kind, FailureKind::mismatch);
        EXPECT_EQ(outcome.failure->tensor, outcome.key.name);
        EXPECT_EQ(outcome.failure->ranks, RankSet::range(0, ranks - 1));
        EXPECT_NE(outcome.failure->message.find("[1000] on rank "), std::string::npos)
            << outcome.failure->message;
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Simulation, WhenARankLeavesEverySubmissionIsStillAnswered) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(random_options(seed, 24));
    const int ranks = simulation.ranks();
    if (ranks == 1) continue;
    const int leaver = static_cast<int>(simulation.random()() % static_cast<unsigned>(ranks));
    constexpr int keys = 6;
    submit_round(simulation, keys, [](int, int) { return floats(3); });
    simulation.leave(leaver);
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != leaver) simulation.submit(rank, {.name = "too late"}, floats(3));
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(simulation.ended(rank));
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        if (!outcome.failure) continue;
        EXPECT_EQ(outcome.failure->kind,
                  rank == leaver ? FailureKind::shut_down : FailureKind::peer_left);
        EXPECT_EQ(outcome.failure->ranks, RankSet::of(leaver));
        EXPECT_NE(outcome.failure->message.find(outcome.key.name), std::string::npos);
      }
      if (rank != leaver) {
        EXPECT_TRUE(simulation.outcomes(rank).back().failure);
      }
    }
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != leaver) simulation.leave(rank);
    simulation.run();
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(simulation.ended(rank)) << rank;
    if (HasFailure()) return;
  }
}

TEST(Simulation, AThousandAndMoreRanks) {
  Simulation simulation({.node_of = even_nodes(1536, 8), .seed = 7});
  constexpr int keys = 4;
  constexpr int rounds = 4;
  for (int round = 0; round < rounds; ++round)
    submit_round(simulation, keys, [&](int rank, int key) {
      return floats(round == 2 && key == 1 && rank % 500 == 499 ? 5 : 4);
    });
  simulation.run();
  expect_consistent(simulation);
  int failed = 0;
  for (const Outcome& outcome : simulation.outcomes(1535)) {
    if (!outcome.failure) continue;
    ++failed;
    EXPECT_NE(outcome.failure->message.find("[5] on ranks 499, 999, 1499"), std::string::npos)
        << outcome.failure->message;
  }
  EXPECT_EQ(failed, 1);
}

TEST(Simulation, OnceNamesRepeatTheyTravelAsBits) {
  Simulation simulation({.node_of = even_nodes(16, 4), .seed = 3});
  const auto round = [&] {
    const std::int64_t before = simulation.bytes_sent();
    submit_round(simulation, 40, [](int, int) { return floats(100); });
    simulation.run();
    return simulation.bytes_sent() - before;
  };
  const std::int64_t first = round();
  round();  // gives the slots
  EXPECT_LT(round(), first / 2);
  expect_consistent(simulation);
}

TEST(Simulation, ALateRankIsNamedAndThenGivenUp) {
  using namespace std::chrono_literals;
  Simulation simulation(
      {.node_of = even_nodes(12, 4), .seed = 5, .stall_warning = 10s, .stall_shutdown = 60s});
  simulation.pass_time(1s);
  for (int rank = 0; rank < 12; ++rank)
    if (rank != 2 && rank != 9) simulation.submit(rank, {.name = "late"}, floats(1));
  simulation.run();
  simulation.pass_time(5s);
  EXPECT_TRUE(simulation.reports(0).empty());
  simulation.pass_time(6s);
  EXPECT_TRUE(simulation.reports(0).empty());  // the root asks first
  simulation.pass_time(1s);
  ASSERT_FALSE(simulation.reports(0).empty());
  EXPECT_NE(simulation.reports(0).back().find("missing ranks 2, 9"), std::string::npos)
      << simulation.reports(0).back();
  simulation.pass_time(60s);
  simulation.pass_time(1s);
  simulation.submit(2, {.name = "late"}, floats(1));
  simulation.run();
  expect_consistent(simulation);
  for (int rank = 0; rank < 12; ++rank) {
    for (const Outcome& outcome : simulation.outcomes(rank)) {
      ASSERT_TRUE(outcome.failure);
      EXPECT_EQ(outcome.failure->kind, FailureKind::stalled);
      EXPECT_EQ(outcome.failure->ranks.to_vector(), (std::vector<int>{2, 9}));
    }
  }
}

TEST(Simulation, AKeyThatIsSubmittedAgainIsNotLateForItsLastTime) {
  using namespace std::chrono_literals;
  Simulation simulation(
      {.node_of = even_nodes(2, 2), .seed = 1, .stall_warning = 10s, .stall_shutdown = 10s});
  const Key key{.name = "again"};
  simulation.submit(0, key, floats(1));
  simulation.run();
  simulation.pass_time(11s);  // the root asks who has it
  simulation.submit(1, key, floats(1));
  simulation.submit(0, key, floats(1));
  simulation.run();
  simulation.pass_time(1s);
  EXPECT_TRUE(simulation.reports(0).empty()) << simulation.reports(0).front();
  simulation.submit(1, key, floats(1));
  simulation.run();
  expect_consistent(simulation);
  for (const Outcome& outcome : simulation.outcomes(0)) EXPECT_TRUE(outcome.batch);
}

}  // namespace
}  // namespace kolo::internal::test
