// Plans under random schedules: repeated steps with everything in between that ends a plan. Every
// test names its seed when it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "simulation.hpp"

namespace kolo::test {
namespace {

using namespace std::chrono_literals;
using negotiation::FailureKind;

Simulation::Options options_for(std::uint64_t seed, int most_ranks) {
  std::mt19937_64 random(seed);
  const auto ranks = 1 + random() % static_cast<std::uint64_t>(most_ranks);
  Simulation::Options options;
  options.node_of.assign(ranks, 0);
  options.seed = seed;
  options.fusion_threshold = std::int64_t{1} << (random() % 14);
  options.cache_capacity = static_cast<std::int64_t>(random() % 24);
  options.replay = true;
  return options;
}

/// `test(simulation)` for each seed, until one fails.
void for_seeds(std::uint64_t seeds, int most_ranks, const std::function<void(Simulation&)>& test,
               bool clocks_run = true) {
  for (std::uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation::Options options = options_for(seed, most_ranks);
    options.clocks_run = clocks_run;
    Simulation simulation(options);
    test(simulation);
  }
}

std::uint64_t draw(Simulation& simulation, std::uint64_t below) {
  return simulation.random()() % below;
}

negotiation::Key key_of(std::uint64_t number) { return {.name = "key" + std::to_string(number)}; }

/// One step as a program makes it: every rank submits every key, most in the same order, and waits.
void step(Simulation& simulation, std::uint64_t keys,
          const std::function<Descriptor(int rank, std::uint64_t key)>& descriptor,
          const std::function<void(int rank, std::uint64_t key)>& before = {}) {
  for (int rank = 0; rank < simulation.ranks(); ++rank) {
    std::vector<std::uint64_t> order(keys);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    if (!before && draw(simulation, 20) == 0)
      std::shuffle(order.begin(), order.end(), simulation.random());
    for (const std::uint64_t key : order) {
      if (before) before(rank, key);
      simulation.submit(rank, key_of(key), descriptor(rank, key));
      if (draw(simulation, 10) == 0 && key == order.back()) simulation.wait(rank);
    }
  }
}

Descriptor plain(int /*rank*/, std::uint64_t key) {
  return floats(static_cast<std::int64_t>(1 + key * 40));
}

void expect_all_executed(const Simulation& simulation) {
  expect_consistent(simulation);
  EXPECT_TRUE(simulation.finished());
  for (int rank = 0; rank < simulation.ranks(); ++rank)
    for (const Outcome& outcome : simulation.outcomes(rank))
      EXPECT_FALSE(outcome.failure) << outcome.failure->message;
}

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

enum class Cause { another_name, mismatch, join, departure, set_change, other_set };

/// Five steps of three batches, which begin a plan; then three in which rank `one` does what ends
/// it before operation `place` of nine, and the others do, where they must, before `others_place`;
/// then two more.
class StoppedSteps {
 public:
  StoppedSteps(Simulation& simulation, Cause cause, int one, std::uint64_t place,
               std::uint64_t others_place)
      : simulation_(simulation), cause_(cause), one_(one) {
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      if (cause == Cause::other_set) simulation.add_set(rank, RankSet::range(0, 1));
      simulation.wait(rank);
      steps(rank, 5);
      stopped_steps(rank, rank == one ? place : others_place);
      if (cause != Cause::departure) steps(rank, 2);
    }
  }

  void check() const {
    expect_consistent(simulation_);
    EXPECT_TRUE(simulation_.finished());
    EXPECT_GE(simulation_.plans(), 1U);
    for (int rank = 0; rank < simulation_.ranks(); ++rank) {
      const auto failed =
          std::ranges::count_if(simulation_.outcomes(rank),
                                [](const Outcome& outcome) { return outcome.failure.has_value(); });
      if (cause_ == Cause::mismatch) {
        EXPECT_EQ(failed, 1);
      } else if (cause_ != Cause::departure) {
        EXPECT_EQ(failed, 0);
      } else if (rank != one_) {
        EXPECT_GE(failed, 1);
      }
    }
  }

 private:
  void steps(int rank, int count) {
    for (int i = 0; i < count; ++i) {
      for (std::uint64_t key = 0; key < 3; ++key)
        simulation_.submit(rank, key_of(key), plain(rank, key));
      simulation_.wait(rank);
    }
  }

  void stopped_steps(int rank, std::uint64_t place) {
    for (std::uint64_t i = 0; i < 9; ++i) {
      const bool odd = cause_ == Cause::mismatch && rank == one_ && i == place;
      if (i == place && !stop(rank)) return;
      simulation_.submit(rank, key_of(i % 3), odd ? floats(777) : plain(rank, i % 3));
    }
  }

  /// False if the rank submits nothing more.
  bool stop(int rank) {
    switch (cause_) {
      case Cause::another_name: simulation_.submit(rank, {.name = "other"}, floats(2)); return true;
      case Cause::mismatch: return true;
      case Cause::join: simulation_.join(rank); return false;
      case Cause::departure:
        if (rank == one_) simulation_.leave(rank);
        return rank != one_;
      case Cause::set_change: simulation_.add_set(rank, RankSet::range(0, 1)); return true;
      case Cause::other_set:
        if (rank <= 1) simulation_.submit(rank, {.name = "of set", .set = 1}, floats(3));
        return true;
    }
    return true;
  }

  Simulation& simulation_;
  Cause cause_;
  int one_;
};

class PlansThatEnd : public testing::TestWithParam<Cause> {};

TEST_P(PlansThatEnd, AtEveryPlaceOfEveryRank) {
  std::uint64_t seed = 0;
  for (const int ranks : {2, 3}) {
    for (std::uint64_t place = 0; place < 9; ++place) {
      for (std::uint64_t others_place = 0; others_place < 9; ++others_place) {
        for (int one = 0; one < ranks; ++one) {
          SCOPED_TRACE(testing::Message() << "rank " << one << " of " << ranks << " at " << place
                                          << ", others at " << others_place << ", seed " << seed);
          Simulation::Options options = options_for(0, 1);
          options.node_of.assign(static_cast<std::size_t>(ranks), 0);
          options.seed = ++seed;
          options.fusion_threshold = 0;
          Simulation simulation(options);
          const StoppedSteps steps(simulation, GetParam(), one, place, others_place);
          simulation.run();
          steps.check();
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(For, PlansThatEnd,
                         testing::Values(Cause::another_name, Cause::mismatch, Cause::join,
                                         Cause::departure, Cause::set_change, Cause::other_set));

TEST(Plans, AMismatchWithinOneFailsOnAllAndNothingElseDoes) {
  for_seeds(400, 8, [](Simulation& simulation) {
    if (simulation.ranks() == 1) return;
    constexpr std::uint64_t keys = 4;
    const auto odd_step = 3 + draw(simulation, 10);
    const auto odd_key = draw(simulation, keys);
    const auto odd_rank =
        static_cast<int>(draw(simulation, static_cast<std::uint64_t>(simulation.ranks())));
    for (std::uint64_t i = 0; i < 16; ++i)
      step(simulation, keys, [&](int rank, std::uint64_t key) {
        return i == odd_step && key == odd_key && rank == odd_rank ? floats(999) : plain(rank, key);
      });
    simulation.run();
    expect_consistent(simulation);
    EXPECT_TRUE(simulation.finished());
    for (int rank = 0; rank < simulation.ranks(); ++rank) {
      std::map<std::string, std::uint64_t> step_of;
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        const bool odd = step_of[outcome.key.name]++ == odd_step && outcome.key == key_of(odd_key);
        ASSERT_EQ(outcome.failure.has_value(), odd);
        if (odd) {
          EXPECT_EQ(outcome.failure->kind, FailureKind::mismatch);
        }
      }
    }
  });
}

TEST(Plans, ARankThatJoinsEndsThemAndIsLeftOut) {
  for_seeds(500, 10, [](Simulation& simulation) {
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < simulation.ranks(); ++rank) {
        const std::uint64_t steps = 4 + draw(simulation, 6);
        for (std::uint64_t i = 0; i < steps; ++i) {
          const std::uint64_t keys = i + 1 == steps ? draw(simulation, 4) : 3;
          for (std::uint64_t key = 0; key < keys; ++key)
            simulation.submit(rank, key_of(key), plain(rank, key));
          simulation.wait(rank);
        }
        simulation.join(rank);
      }
    }
    simulation.run();
    expect_all_executed(simulation);
  });
}

TEST(Plans, ProcessSetsComeAndGoBetweenAndWithinThem) {
  for_seeds(500, 8, [](Simulation& simulation) {
    negotiation::SetId set = negotiation::world_set;
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

TEST(Plans, WhenARankLeavesEverySubmissionIsStillAnswered) {
  for_seeds(500, 8, [](Simulation& simulation) {
    const int ranks = simulation.ranks();
    if (ranks == 1) return;
    const auto leaver = static_cast<int>(draw(simulation, static_cast<std::uint64_t>(ranks)));
    const std::uint64_t left_in = 2 + draw(simulation, 10);
    const std::uint64_t left_before = draw(simulation, 5);
    for (std::uint64_t i = 0; i < 14; ++i) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::uint64_t key = 0; key < 4; ++key) {
          if (rank == leaver && (i > left_in || (i == left_in && key >= left_before))) break;
          simulation.submit(rank, key_of(key), plain(rank, key));
        }
        if (draw(simulation, 2) == 0) simulation.wait(rank);
        if (rank == leaver && i == left_in) simulation.leave(rank);
      }
    }
    simulation.run();
    expect_consistent(simulation);
    EXPECT_TRUE(simulation.finished());
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        if (!outcome.failure) continue;
        EXPECT_EQ(outcome.failure->kind,
                  rank == leaver ? FailureKind::shut_down : FailureKind::peer_left);
      }
      if (rank != leaver) {
        EXPECT_TRUE(simulation.outcomes(rank).back().failure);
      }
      if (rank != leaver) simulation.leave(rank, true);
    }
    simulation.run();
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(simulation.ended(rank)) << rank;
  });
}

TEST(Plans, ARankThatSkipsAnOperationIsNotMatchedWronglyAndIsReported) {
  for_seeds(300, 6, [](Simulation& simulation) {
    const int ranks = simulation.ranks();
    if (ranks == 1) return;
    const auto skipper = static_cast<int>(draw(simulation, static_cast<std::uint64_t>(ranks)));
    const std::uint64_t skipped = draw(simulation, 3);
    for (int i = 0; i < 12; ++i)
      for (int rank = 0; rank < ranks; ++rank)
        for (std::uint64_t key = 0; key < 3; ++key)
          if (rank != skipper || key != skipped || i != 8)
            simulation.submit(rank, key_of(key), plain(rank, key));
    simulation.run();
    for (int rank = 0; rank < ranks; ++rank) {
      int unanswered = 0;
      for (const Outcome& outcome : simulation.outcomes(rank)) {
        EXPECT_FALSE(outcome.failure);
        if (outcome.answers == 0) ++unanswered;
      }
      EXPECT_EQ(unanswered, rank == skipper ? 0 : 1);
      simulation.leave(rank, true);
    }
    simulation.run();
    expect_consistent(simulation);
  });
}

TEST(Plans, ALateRankIsReportedAndGivenUp) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation::Options options = options_for(seed, 1);
    options.node_of.assign(4, 0);
    options.stall_warning = 10s;
    options.stall_shutdown = 60s;
    Simulation simulation(options);
    for (int i = 0; i < 10; ++i) {
      for (int rank = 0; rank < 4; ++rank) {
        simulation.submit(rank, key_of(0), floats(1));
        simulation.wait(rank);
      }
    }
    simulation.run();
    EXPECT_EQ(simulation.plans(), 1U);
    for (const int rank : {0, 2, 3}) simulation.submit(rank, key_of(0), floats(1));
    simulation.run();
    simulation.pass_time(11s);
    simulation.pass_time(1s);
    ASSERT_FALSE(simulation.reports(0).empty());
    EXPECT_NE(simulation.reports(0).back().find("missing rank 1"), std::string::npos)
        << simulation.reports(0).back();
    simulation.pass_time(60s);
    simulation.pass_time(1s);
    expect_consistent(simulation);
    EXPECT_EQ(simulation.outcomes(2).back().failure->kind, FailureKind::stalled);
    if (testing::Test::HasFailure()) return;
  }
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
}  // namespace kolo::test
