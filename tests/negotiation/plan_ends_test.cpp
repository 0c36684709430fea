// SPDX-License-Identifier: Apache-2.0
// Plans under random schedules: every event that ends a plan, at every position. Every test prints
// its seed when it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan_steps.hpp"

namespace kolo::internal::test {
namespace {

using namespace std::chrono_literals;

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
      if (rank != leaver) simulation.leave(rank);
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
      simulation.leave(rank);
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

}  // namespace
}  // namespace kolo::internal::test
