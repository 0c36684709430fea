// SPDX-License-Identifier: Apache-2.0
// Process sets and joined ranks under random schedules. Every test prints its seed when it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "simulation.hpp"

namespace kolo::internal::test {
namespace {

using testing::HasSubstr;

Simulation::Options random_options(std::uint64_t seed, int max_ranks) {
  std::mt19937_64 random(seed);
  Simulation::Options options;
  const auto ranks = 1 + random() % static_cast<std::uint64_t>(max_ranks);
  const auto nodes = 1 + random() % ranks;
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    options.node_of.push_back(static_cast<int>(random() % nodes));
  options.seed = seed;
  options.arity = 1 + static_cast<int>(random() % 3);
  options.fusion_threshold = std::int64_t{1} << (random() % 16);
  options.cache_capacity = static_cast<std::int64_t>(random() % 12);
  return options;
}

void for_seeds(int seeds, int max_ranks, const std::function<void(Simulation&)>& test) {
  for (int seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(random_options(static_cast<std::uint64_t>(seed), max_ranks));
    test(simulation);
  }
}

RankSet random_members(Simulation& simulation) {
  RankSet members;
  while (members.empty())
    for (int rank = 0; rank < simulation.ranks(); ++rank)
      if (simulation.random()() % 2 == 0) members.insert(RankSet::of(rank));
  return members;
}

std::vector<std::string> shuffled_names(Simulation& simulation, int names) {
  std::vector<std::string> shuffled;
  for (int i = 0; i < names; ++i) shuffled.push_back("key" + std::to_string(i));
  std::shuffle(shuffled.begin(), shuffled.end(), simulation.random());
  return shuffled;
}

/// The ranks of the batch in which the outcome's operation was executed, as `rank` saw it.
RankSet ranks_of_batch(const Simulation& simulation, int rank, const Outcome& outcome) {
  for (const SeenBatch& batch : simulation.log(rank))
    if (batch.sequence == outcome.batch) return batch.ranks;
  ADD_FAILURE() << "there is no such batch";
  return {};
}

TEST(Joins, WhoHasJoinedIsLeftOutAndNobodyElse) {
  for_seeds(400, 12, [](Simulation& simulation) {
    constexpr int rounds = 3;
    std::map<std::pair<int, std::string>, RankSet> submitters;  // by round and name
    for (int round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        const auto names = shuffled_names(simulation, 6);
        const auto most = simulation.random()() % 7;
        for (std::size_t i = 0; i < most; ++i) {
          simulation.submit(rank, {.name = names[i]}, floats(5));
          submitters[{round, names[i]}].insert(RankSet::of(rank));
        }
        simulation.join(rank);
      }
    }
    simulation.run();
    expect_consistent(simulation);
    std::vector<std::int64_t> last(rounds, -1);
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      int round = 0;
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        ASSERT_FALSE(outcome.failure) << outcome.failure->message;
        if (outcome.key.number != join_number) {
          ASSERT_TRUE(outcome.batch);
          EXPECT_EQ(to_string(ranks_of_batch(simulation, rank, outcome)),
                    to_string(submitters[{round, outcome.key.name}]));
          continue;
        }
        ASSERT_TRUE(outcome.answer);
        auto& known = last[static_cast<std::size_t>(round++)];
        if (known == -1) known = *outcome.answer;
        EXPECT_EQ(*outcome.answer, known);
        EXPECT_LT(known, simulation.ranks());
      }
      EXPECT_EQ(round, rounds);
    }
  });
}

TEST(Joins, OperationsWithoutANameAreCountedAfreshAfterwards) {
  for_seeds(200, 8, [](Simulation& simulation) {
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        const auto most = simulation.random()() % 5;
        for (std::uint64_t number = 0; number < most; ++number)
          simulation.submit(rank, {.number = number}, floats(static_cast<std::int64_t>(number)));
        simulation.join(rank);
      }
    }
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank)
      for (const Outcome& outcome : simulation.outcomes(rank))
        EXPECT_FALSE(outcome.failure) << outcome.failure->message;
  });
}

TEST(Joins, WhatHasNoMeaningWithoutARankFailsOnAllWhoAskForIt) {
  Simulation simulation({.node_of = {0, 0, 1, 1}});
  simulation.join(1);
  simulation.run();
  Descriptor alltoall = floats(4);
  alltoall.type = OperationType::alltoall;
  Descriptor from_absent = floats(4);
  from_absent.type = OperationType::broadcast;
  from_absent.root = 1;
  Descriptor from_present = from_absent;
  from_present.root = 2;
  for (const int rank : {0, 2, 3}) {
    simulation.submit(rank, {.name = "alltoall"}, alltoall);
    simulation.submit(rank, {.name = "from absent"}, from_absent);
    simulation.submit(rank, {.name = "from present"}, from_present);
  }
  for (const int rank : {3, 0, 2}) simulation.join(rank);
  simulation.run();
  expect_consistent(simulation);
  for (const int rank : {0, 2, 3}) {
    const std::vector<Outcome>& outcomes = simulation.outcomes(rank);
    ASSERT_TRUE(outcomes.at(0).failure);
    EXPECT_EQ(outcomes.at(0).failure->kind, FailureKind::mismatch);
    EXPECT_EQ(outcomes.at(0).failure->message,
              "alltoall \"alltoall\": it is undefined without rank 1, which has joined");
    ASSERT_TRUE(outcomes.at(1).failure);
    EXPECT_THAT(outcomes.at(1).failure->message, HasSubstr("its root, rank 1, has joined"));
    EXPECT_TRUE(outcomes.at(2).batch);
    EXPECT_TRUE(outcomes.at(3).answer);
  }
}

TEST(Joins, ADepartureAnswersThemToo) {
  for_seeds(200, 10, [](Simulation& simulation) {
    const int ranks = simulation.ranks();
    const int leaver = static_cast<int>(simulation.random()() % static_cast<unsigned>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      simulation.submit(rank, {.name = "a"}, floats(1));
      if (rank == leaver) {
        simulation.leave(rank);
      } else {
        simulation.join(rank);
      }
    }
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == leaver) continue;
      ASSERT_TRUE(simulation.outcomes(rank).back().failure);
      EXPECT_EQ(simulation.outcomes(rank).back().failure->kind, FailureKind::peer_left);
    }
  });
}

TEST(ProcessSets, OverlappingSetsNeverDisagreeAboutTheOrder) {
  for_seeds(300, 12, [](Simulation& simulation) {
    constexpr int sets = 3;
    std::map<SetId, RankSet> members{{world_set, RankSet::range(0, simulation.ranks() - 1)}};
    for (int i = 0; i < sets; ++i) {
      const RankSet some = random_members(simulation);
      for (int rank = 0; rank < simulation.ranks(); ++rank) simulation.add_set(rank, some);
      simulation.run();  // a user has the set's number before it uses it
      members.emplace(simulation.outcomes(0).back().answer.value(), some);
    }
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      std::vector<std::pair<std::string, SetId>> keys;
      for (const auto& [set, ranks] : members)
        if (ranks.contains(rank))
          for (int name = 0; name < 4; ++name) keys.emplace_back(std::to_string(name), set);
      for (int round = 0; round < 3; ++round) {
        std::shuffle(keys.begin(), keys.end(), simulation.random());
        for (const auto& [name, set] : keys)
          simulation.submit(rank, {.name = name + "of" + std::to_string(set), .set = set},
                            floats(3));
      }
    }
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank)
      for (const Outcome& outcome : simulation.outcomes(rank))
        EXPECT_TRUE(outcome.batch || outcome.answer) << to_string(outcome.key);
  });
}

TEST(ProcessSets, TheSameRanksGiveTheSameSetAndNumbersAreNotGivenAgain) {
  Simulation simulation({.node_of = {0, 0, 1}});
  const auto add = [&](const RankSet& members) {
    for (int rank = 0; rank < 3; ++rank) simulation.add_set(rank, members);
    simulation.run();
    return simulation.outcomes(2).back().answer.value();
  };
  const SetId first = add(RankSet::range(0, 1));
  EXPECT_EQ(add(RankSet::range(0, 1)), first);
  const SetId all = add(RankSet::range(0, 2));
  EXPECT_NE(all, world_set);
  EXPECT_EQ(add(RankSet::range(0, 2)), all);
  for (int rank = 0; rank < 3; ++rank) simulation.remove_set(rank, first);
  simulation.run();
  EXPECT_NE(add(RankSet::range(0, 1)), first);
  expect_consistent(simulation);
}

TEST(ProcessSets, DifferentRanksAreADisagreement) {
  Simulation simulation({.node_of = {0, 0, 0}});
  simulation.add_set(0, RankSet::range(0, 1));
  simulation.add_set(1, RankSet::range(0, 1));
  simulation.add_set(2, RankSet::range(1, 2));
  simulation.run();
  expect_consistent(simulation);
  EXPECT_EQ(simulation.outcomes(0).front().failure->message,
            "add_process_set: the ranks disagree: ranks 0-1 on ranks 0-1, 1-2 on rank 2");
}

TEST(ProcessSets, RemovingOneAnswersWhatIsPendingThere) {
  for_seeds(200, 10, [](Simulation& simulation) {
    const RankSet members = random_members(simulation);
    if (members.count() < 2 || members.count() == simulation.ranks()) return;
    for (int rank = 0; rank < simulation.ranks(); ++rank) simulation.add_set(rank, members);
    simulation.run();
    const SetId set = simulation.outcomes(0).front().answer.value();
    const int late = members.to_vector().back();
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      if (members.contains(rank) && rank != late)
        simulation.submit(rank, {.name = "pending", .set = set}, floats(1));
      simulation.remove_set(rank, set);
      simulation.submit(rank, {.name = "of the world"}, floats(1));
    }
    simulation.run();
    simulation.submit(late, {.name = "pending", .set = set}, floats(1));
    simulation.run();
    expect_consistent(simulation);
    for (const int rank : members.to_vector()) {
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        EXPECT_EQ(outcome.failure.has_value(), outcome.key.set == set);
        if (!outcome.failure) continue;
        EXPECT_EQ(outcome.failure->kind, FailureKind::shut_down);
        EXPECT_THAT(outcome.failure->message, HasSubstr("the process set was removed"));
        EXPECT_EQ(outcome.failure->ranks, members);
      }
    }
  });
}

TEST(ProcessSets, RemovedOnesLeaveTheirCacheSlotsToOthers) {
  constexpr int ranks = 4;
  Simulation simulation({.node_of = even_nodes(ranks, 2), .cache_capacity = 20});
  const RankSet members = RankSet::range(0, ranks - 1);
  std::vector<std::int64_t> bytes;  // sent for the operations in full, and by their slots
  for (int round = 0; round < 8; ++round) {
    for (int rank = 0; rank < ranks; ++rank) simulation.add_set(rank, members);
    simulation.run();
    const SetId set = simulation.outcomes(0).back().answer.value();
    for (int time = 0; time < 3; ++time) {
      bytes.push_back(-simulation.bytes_sent());
      for (int rank = 0; rank < ranks; ++rank)
        for (int name = 0; name < 15; ++name)
          simulation.submit(
              rank, {.name = std::string(200, 'n') + std::to_string(name), .set = set}, floats(3));
      simulation.run();
      bytes.back() += simulation.bytes_sent();
    }
    EXPECT_LT(bytes.back(), bytes[bytes.size() - 2] / 4) << "round " << round;
    for (int rank = 0; rank < ranks; ++rank) simulation.remove_set(rank, set);
    simulation.run();
  }
  expect_consistent(simulation);
}

// Readiness of a removed set is still on its way when its slots belong to other names.
TEST(ProcessSets, SlotsThatAreFreedWhileInUseAreNotConfused) {
  for_seeds(400, 8, [](Simulation& simulation) {
    const RankSet members = random_members(simulation);
    SetId set = world_set;
    for (int round = 0; round < 6; ++round) {
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        if (set != world_set) {
          simulation.remove_set(rank, set);
          // Not waited for: more is submitted to the set, and the names of the world get its slots.
          if (members.contains(rank))
            for (const std::string& name : shuffled_names(simulation, 4))
              if (simulation.random()() % 2 == 0)
                simulation.submit(rank, {.name = name + std::to_string(round - 1), .set = set},
                                  floats(2));
          for (int time = 0; time < 3; ++time)
            for (const std::string& name : shuffled_names(simulation, 3))
              simulation.submit(rank, {.name = name}, floats(7));
        }
        simulation.add_set(rank, members);
      }
      simulation.run();
      set = simulation.outcomes(0).back().answer.value();
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        if (!members.contains(rank)) continue;
        for (int time = 0; time < 3; ++time) {
          for (const std::string& name : shuffled_names(simulation, 4)) {
            // Some operations remain incomplete until the set is removed.
            if (time == 2 && simulation.random()() % 3 == 0) continue;
            simulation.submit(rank, {.name = name + std::to_string(round), .set = set}, floats(2));
          }
        }
      }
    }
    for (int rank = 0; rank < simulation.ranks(); ++rank) simulation.remove_set(rank, set);
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank)
      for (const Outcome& outcome : simulation.outcomes(rank))
        if (outcome.key.set == world_set) {
          EXPECT_FALSE(outcome.failure) << outcome.failure->message;
        }
  });
}

TEST(ProcessSets, ADepartureBreaksOnlyTheSetsThatHoldTheRank) {
  Simulation simulation({.node_of = {0, 0, 1, 1}});
  for (const RankSet& members : {RankSet::range(1, 2), RankSet::range(2, 3)}) {
    for (int rank = 0; rank < 4; ++rank) simulation.add_set(rank, members);
    simulation.run();
  }
  const SetId without = simulation.outcomes(0).at(0).answer.value();
  const SetId with = simulation.outcomes(0).at(1).answer.value();
  simulation.leave(3);
  simulation.run();
  simulation.submit(1, {.name = "x", .set = without}, floats(1));
  simulation.submit(2, {.name = "x", .set = without}, floats(1));
  simulation.submit(2, {.name = "x", .set = with}, floats(1));
  simulation.submit(0, {.name = "x"}, floats(1));
  simulation.run();
  expect_consistent(simulation);
  EXPECT_TRUE(simulation.outcomes(1).back().batch);
  EXPECT_EQ(simulation.outcomes(2).back().failure->message,
            "allreduce \"x\" of process set 2: rank 3 left the session: of the test");
  EXPECT_EQ(simulation.outcomes(0).back().failure->kind, FailureKind::peer_left);
}

TEST(ProcessSets, AStallBreaksItsSetOnly) {
  using namespace std::chrono_literals;
  Simulation simulation({.node_of = {0, 0, 0}, .stall_shutdown = 10s});
  for (int rank = 0; rank < 3; ++rank) simulation.add_set(rank, RankSet::range(1, 2));
  simulation.run();
  const SetId set = simulation.outcomes(0).front().answer.value();
  simulation.pass_time(1s);
  simulation.submit(1, {.name = "late", .set = set}, floats(1));
  simulation.run();
  for (int second = 0; second < 12; ++second) simulation.pass_time(1s);
  for (int rank = 0; rank < 3; ++rank) simulation.submit(rank, {.name = "world"}, floats(1));
  simulation.submit(2, {.name = "late", .set = set}, floats(1));
  simulation.run();
  expect_consistent(simulation);
  ASSERT_TRUE(simulation.outcomes(1).at(1).failure);
  EXPECT_EQ(simulation.outcomes(1).at(1).failure->kind, FailureKind::stalled);
  EXPECT_EQ(simulation.outcomes(1).at(1).failure->ranks, RankSet::of(2));
  EXPECT_TRUE(simulation.outcomes(1).at(2).batch);
  EXPECT_EQ(simulation.outcomes(2).back().failure->kind, FailureKind::stalled);
}

TEST(ProcessSets, SetsJoinsAndDisagreementsTogether) {
  for_seeds(400, 10, [](Simulation& simulation) {
    const RankSet members = random_members(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank) simulation.add_set(rank, members);
    simulation.run();
    const SetId set = simulation.outcomes(0).front().answer.value();
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        for (const std::string& name : shuffled_names(simulation, 4)) {
          if (simulation.random()() % 3 == 0) continue;
          const std::int64_t elements = simulation.random()() % 8 == 0 ? 9 : 3;
          const bool inside = members.contains(rank) && simulation.random()() % 2 == 0;
          simulation.submit(rank, {.name = name, .set = inside ? set : world_set},
                            floats(elements));
        }
        simulation.join(rank);
      }
    }
    simulation.run();
    expect_consistent(simulation);
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        if (outcome.failure) {
          EXPECT_EQ(outcome.failure->kind, FailureKind::mismatch) << outcome.failure->message;
        }
      }
    }
  });
}

}  // namespace
}  // namespace kolo::internal::test
