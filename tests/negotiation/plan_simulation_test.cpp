// SPDX-License-Identifier: Apache-2.0
// Plans under random schedules: repeated steps, and events between them. Every test prints its seed
// when it fails.
#include <gtest/gtest.h>

#include "plan_steps.hpp"

namespace kolo::internal::test {
namespace {

TEST(Plans, RepeatedStepsSendNothing) {
  for_seeds(
      200, 16,
      [](Simulation& simulation) {
        for (int i = 0; i < 30; ++i) {
          for (int rank = 0; rank < simulation.ranks(); ++rank) {
            for (std::uint64_t key = 0; key < 6; ++key)
              simulation.submit(rank, key_of(key), plain(rank, key));
            simulation.wait(rank);
          }
        }
        simulation.run();
        expect_all_executed(simulation);
        EXPECT_EQ(simulation.plans(), 1U);
        EXPECT_GE(simulation.replayed(0), 24U);
        const std::int64_t sent = simulation.bytes_sent();
        for (int rank = 0; rank < simulation.ranks(); ++rank)
          for (std::uint64_t key = 0; key < 6; ++key)
            simulation.submit(rank, key_of(key), plain(rank, key));
        simulation.run();
        expect_all_executed(simulation);
        EXPECT_EQ(simulation.bytes_sent(), sent);
      },
      false);
}

TEST(Plans, HoldOperationsWithoutANameAndStepsOfOptimizers) {
  for_seeds(
      200, 8,
      [](Simulation& simulation) {
        std::uint64_t number = 0;
        for (int i = 0; i < 30; ++i, number += 2) {
          for (int rank = 0; rank < simulation.ranks(); ++rank) {
            Descriptor with_step = floats(8);
            with_step.step = i;
            simulation.submit(rank, {.number = number}, floats(3));
            simulation.submit(rank, key_of(1), with_step);
            simulation.submit(rank, {.number = number + 1}, floats(4));
            simulation.wait(rank);
          }
        }
        simulation.run();
        expect_all_executed(simulation);
        EXPECT_EQ(simulation.plans(), 1U);
        EXPECT_GE(simulation.replayed(0), 20U);
      },
      false);
}

TEST(Plans, AreFollowedInWhateverOrderARankSubmits) {
  for_seeds(300, 12, [](Simulation& simulation) {
    for (int i = 0; i < 20; ++i) step(simulation, 7, plain);
    simulation.run();
    expect_all_executed(simulation);
  });
}

TEST(Plans, EndWhereAnyRankDoesSomethingElseAtAnyPlace) {
  constexpr std::uint64_t keys = 5;
  std::uint64_t stopped = 0;
  for_seeds(600, 8, [&](Simulation& simulation) {
    std::uint64_t extra = 0;
    for (int i = 0; i < 40; ++i) {
      const bool odd = draw(simulation, 6) == 0;
      const std::uint64_t cause = draw(simulation, 4);
      if (odd) ++extra;
      // Each rank does it at a place of its own, so they stop at different positions.
      std::vector<std::uint64_t> place;
      for (int rank = 0; rank < simulation.ranks(); ++rank) place.push_back(draw(simulation, keys));
      const auto something_else = [&](int rank, std::uint64_t key) {
        if (key != place[static_cast<std::size_t>(rank)]) return;
        simulation.submit(rank, {.name = "extra" + std::to_string(extra % 3)}, floats(9));
        if (draw(simulation, 2) == 0) simulation.wait(rank);
      };
      const auto descriptor = [&](int rank, std::uint64_t key) {
        Descriptor usual = plain(rank, key);
        if (odd && cause == 1 && key == place.front()) usual.prescale = static_cast<double>(extra);
        return usual;
      };
      if (odd && cause == 0) {
        step(simulation, keys, descriptor, something_else);
      } else {
        step(simulation, keys, descriptor);
      }
      if (odd && cause == 2)  // a part of a step
        for (int rank = 0; rank < simulation.ranks(); ++rank)
          simulation.submit(rank, key_of(place.front()), plain(rank, place.front()));
      if (odd && cause == 3)
        for (int rank = 0; rank < simulation.ranks(); ++rank)
          simulation.submit(rank, {.number = extra}, floats(2));
    }
    // The numbers of unnamed operations ascend without gaps only by chance: that is no fault.
    simulation.run();
    expect_all_executed(simulation);
    stopped += simulation.plans();
  });
  EXPECT_GE(stopped, 600U);
}

TEST(Plans, ProcessSetsComeAndGoBetweenAndWithinThem) {
  for_seeds(500, 8, [](Simulation& simulation) {
    SetId set = world_set;
    for (int i = 0; i < 24; ++i) {
      step(simulation, 3, plain);
      if (draw(simulation, 4) != 0) continue;
      RankSet members;
      while (members.empty())
        for (int rank = 0; rank < simulation.ranks(); ++rank)
          if (draw(simulation, 2) == 0) members.insert(RankSet::of(rank));
      ++set;
      const bool removed = draw(simulation, 2) == 0;
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        simulation.add_set(rank, members);
        simulation.wait(rank);
        if (members.contains(rank))
          simulation.submit(rank, {.name = "of set", .set = set}, floats(5));
        if (draw(simulation, 2) == 0 || removed) simulation.wait(rank);
        if (removed) simulation.remove_set(rank, set);
        if (draw(simulation, 2) == 0) simulation.wait(rank);
      }
      if (!removed) {  // the same ranks would give the same set again
        for (int rank = 0; rank < simulation.ranks(); ++rank) {
          simulation.wait(rank);
          simulation.remove_set(rank, set);
        }
      }
    }
    simulation.run();
    expect_all_executed(simulation);
  });
}

TEST(Plans, AnOperationOfASetThatIsPendingMeanwhileIsAnswered) {
  for_seeds(300, 6, [](Simulation& simulation) {
    const RankSet all = RankSet::range(0, simulation.ranks() - 1);
    for (int rank = 0; rank < simulation.ranks(); ++rank) simulation.add_set(rank, all);
    simulation.run();
    for (int i = 0; i < 20; ++i) {
      step(simulation, 3, plain);
      // Each rank submits it between steps of its own choice, and not more often than the others.
      if (i % 5 != 0) continue;
      for (int rank = 0; rank < simulation.ranks(); ++rank)
        simulation.submit(rank, {.name = "of set", .set = 1}, floats(5));
    }
    simulation.run();
    expect_all_executed(simulation);
  });
}

TEST(Plans, WhoWaitsWithinABatchIsServed) {
  for_seeds(300, 6, [](Simulation& simulation) {
    // All at once, so that it becomes one batch; later one by one.
    for (int i = 0; i < 20; ++i) {
      const bool one_by_one = i > 10 && draw(simulation, 3) == 0;
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        for (std::uint64_t key = 0; key < 4; ++key) {
          simulation.submit(rank, key_of(key), floats(1));
          if (one_by_one) simulation.wait(rank);
        }
        simulation.wait(rank);
      }
    }
    simulation.run();
    expect_all_executed(simulation);
  });
}

TEST(Plans, ThatKeepEndingAreBegunEverMoreSeldom) {
  Simulation::Options options = options_for(1, 1);
  options.node_of.assign(2, 0);
  Simulation simulation(options);
  for (int i = 0; i < 400; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      simulation.submit(rank, key_of(i % 10 == 9 ? 1 : 0), floats(1));
      simulation.wait(rank);
    }
  }
  simulation.run();
  expect_all_executed(simulation);
  EXPECT_GE(simulation.plans(), 2U);
  EXPECT_LE(simulation.plans(), 4U);
}

}  // namespace
}  // namespace kolo::internal::test
