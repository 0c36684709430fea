// SPDX-License-Identifier: Apache-2.0
// The engine's threads: many ranks in one process, each with a thread of its own and several users.
#include "session/engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <latch>
#include <random>
#include <string>
#include <thread>

#include "../diagnostics/trace.hpp"
#include "diagnostics/timeline.hpp"
#include "engine_ranks.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

using test::error_of;
using test::Ranks;
using test::submit_sum;
using test::wait;
using testing::HasSubstr;
using TimePoint = std::chrono::steady_clock::time_point;

TEST(Engine, ThreadsOfAllRanksGetTheirOwnSums) {
  constexpr int ranks = 4;
  constexpr int users = 3;
  Ranks(ranks).run([&](Engine& engine) {
    std::vector<std::thread> threads;
    for (int user = 0; user < users; ++user) {
      threads.emplace_back([&, user] {
        for (int i = 0; i < 40; ++i) {
          std::vector<double> tensor(7, engine.topology().rank + i);
          wait(engine, submit_sum(engine, "user" + std::to_string(user), tensor, true));
          EXPECT_THAT(tensor, testing::Each(ranks * (ranks - 1) / 2 + i * ranks));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

/// One step: three sums at once, and, if `odd`, another one that the steps do not have.
void step(Engine& engine, int number, bool odd) {
  const int rank = engine.topology().rank;
  const int ranks = engine.topology().size;
  std::vector<std::vector<double>> tensors(3, std::vector<double>(5, rank + number));
  std::vector<OperationPtr> operations;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // The ranks do it at places of their own.
    if (odd && static_cast<int>(i) == rank % 3) {
      std::vector<double> tensor(1, rank);
      const OperationPtr other = submit_sum(engine, "odd", tensor, true);
      if (rank % 2 == 0) wait(engine, other);
      operations.push_back(submit_sum(engine, std::to_string(i), tensors[i]));
      wait(engine, other);
      EXPECT_EQ(tensor.front(), ranks * (ranks - 1) / 2);
    } else {
      operations.push_back(submit_sum(engine, std::to_string(i), tensors[i]));
    }
  }
  for (const OperationPtr& operation : operations) wait(engine, operation);
  for (const auto& tensor : tensors)
    EXPECT_THAT(tensor, testing::Each(ranks * (ranks - 1) / 2 + number * ranks));
}

TEST(Engine, StepsThatRepeatAreNotNegotiated) {
  constexpr int ranks = 3;
  constexpr int steps = 500;
  const auto messages_with = [&](bool plan_replay) {
    Ranks all(ranks, {.stall_warning = {}, .plan_replay = plan_replay});
    all.run([&](Engine& engine) {
      for (int i = 0; i < steps; ++i) step(engine, i, false);
    });
    return all.messages();
  };
  // A rank that the machine holds up ends a plan: then some steps are.
  EXPECT_LT(messages_with(true), steps);
  EXPECT_GE(messages_with(false), 2 * steps);
}

// The second batch is submitted while the first ends, in a pass of the engine with checks. It
// starts in the same pass.
TEST(Engine, ATimelineIsInOrderWhereBatchesStartAfterChecks) {
  Ranks all(1);
  std::latch ends(1);
  std::latch submitted(1);
  std::atomic<int> ended{0};
  all.world().before_ends([&] {
    if (ended++ > 0) return;
    all.world().raise_alarms();
    ends.count_down();
    submitted.wait();
  });
  const std::string path = testing::TempDir() + "engine" + std::to_string(::getpid()) + ".json";
  all.run([&](Engine& engine) {
    engine.start_timeline(std::make_shared<diagnostics::Timeline>(path, 0));
    std::vector<double> first(1, 1.0);
    std::vector<double> second(1, 2.0);
    OperationPtr later;
    std::thread user([&] {
      ends.wait();
      later = submit_sum(engine, "second", second);
      submitted.count_down();
    });
    wait(engine, submit_sum(engine, "first", first, true));
    user.join();
    wait(engine, later);
    engine.stop_timeline();
  });
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(test::check_trace(test::read_trace(path)), "");
  std::filesystem::remove(path);
}

TEST(Engine, WhatIsNotAsInOtherStepsIsServedInBetween) {
  Ranks(4).run([&](Engine& engine) {
    for (int i = 0; i < 400; ++i) step(engine, i, i % 10 == 9 || (i > 100 && i % 37 == 0));
  });
}

TEST(Engine, ARankThatLeavesEndsAPlan) {
  constexpr int leaver = 2;
  Ranks(3).run([&](Engine& engine) {
    for (int i = 0; i < 50; ++i) step(engine, i, false);
    if (engine.topology().rank == leaver) return engine.leave(false, "for the test");
    std::vector<double> tensor(5);
    EXPECT_THAT(error_of(engine, submit_sum(engine, "0", tensor, true)),
                HasSubstr("rank 2 left the session: for the test"));
  });
}

TEST(Engine, OperationsThatNobodyWaitsForAreDrivenToo) {
  Ranks(3).run([&](Engine& engine) {
    std::vector<std::vector<double>> tensors(100, std::vector<double>(5, 1.0));
    std::vector<OperationPtr> operations;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      operations.push_back(submit_sum(engine, std::to_string(i), tensors[i]));
    while (!operations.back()->done()) std::this_thread::yield();
    for (const OperationPtr& operation : operations) wait(engine, operation);
    for (const auto& tensor : tensors) EXPECT_THAT(tensor, testing::Each(3.0));
  });
}

TEST(Engine, WhatComesWhileABatchRunsIsAgreedMeanwhile) {
  Ranks ranks(3);
  ranks.world().hold_batches();
  std::barrier all_have_looked(3);
  ranks.run([&](Engine& engine) {
    std::vector<double> first(1, 1.0);
    std::vector<double> second(1, 2.0);
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto all_begin = [&](std::size_t batches) {
      while (!ranks.world().have_begun(batches) && std::chrono::steady_clock::now() < patience)
        std::this_thread::yield();
      return ranks.world().have_begun(batches);
    };
    const OperationPtr running = submit_sum(engine, "first", first);
    EXPECT_TRUE(all_begin(1));
    const OperationPtr agreed = submit_sum(engine, "second", second);
    EXPECT_TRUE(all_begin(2));
    EXPECT_FALSE(running->done());
    all_have_looked.arrive_and_wait();
    ranks.world().release_batches();
    wait(engine, running);
    wait(engine, agreed);
    EXPECT_EQ(first.front() + second.front(), 9.0);
  });
}

TEST(Engine, WhoSleepsIsWoken) {
  // Ranks come early or so late that the others sleep, and wait or leave it to the engine's thread.
  // A lost wake would cost an hour.
  constexpr int operations = 300;
  Ranks(3, {.stall_warning = {}, .test_max_sleep = std::chrono::hours(1)}).run([&](Engine& engine) {
    constexpr unsigned seed = 5;
    std::mt19937 random(seed + static_cast<unsigned>(engine.topology().rank));
    for (int i = 0; i < operations; ++i) {
      std::vector<double> tensor(1, i);
      const auto submit_at =
          std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 2 * 400);
      while (std::chrono::steady_clock::now() < submit_at) std::this_thread::yield();
      const bool waits = random() % 2 == 0;
      const OperationPtr operation = submit_sum(engine, "sum", tensor, waits);
      while (!waits && !operation->done()) std::this_thread::yield();
      wait(engine, operation);
      EXPECT_EQ(tensor.front(), 3.0 * i);
    }
  });
}

/// A thread that begins to wait while the session's own thread drives may leave without driving.
/// The session's own thread must not rely on it then: the next operation would be found after an
/// hour.
TEST(Engine, WhoWaitsWhileAnotherDrivesLeavesNobodyAsleep) {
  constexpr int operations = 300;
  Ranks(2, {.stall_warning = {}, .test_max_sleep = std::chrono::hours(1)}).run([&](Engine& engine) {
    for (int i = 0; i < operations; ++i) {
      std::vector<double> tensor(1, i);
      const OperationPtr operation = submit_sum(engine, "sum", tensor);
      if (i % 2 == 0) {
        wait(engine, operation);
      } else {
        while (!operation->done()) std::this_thread::yield();
      }
      EXPECT_EQ(tensor.front(), 2.0 * i);
    }
  });
}

TEST(Engine, AWaitWithADeadlineEndsAndMayBeRepeated) {
  Ranks(2).run([&](Engine& engine) {
    std::vector<double> tensor(1, 1.0);
    std::vector<double> go(1, 1.0);
    if (engine.topology().rank == 0) {
      const OperationPtr operation = submit_sum(engine, "late", tensor);
      EXPECT_FALSE(engine.wait(*operation, std::chrono::steady_clock::now()));
      EXPECT_FALSE(
          engine.wait(*operation, std::chrono::steady_clock::now() + std::chrono::milliseconds(3)));
      wait(engine, submit_sum(engine, "go", go, true));
      wait(engine, operation);
    } else {
      wait(engine, submit_sum(engine, "go", go, true));
      wait(engine, submit_sum(engine, "late", tensor, true));
    }
    EXPECT_EQ(tensor.front(), 2.0);
  });
}

/// The first batch's callback submits the second operation. With one rank, the first is done in the
/// same pass, so the second begins in the pass in which its thread hands the bell over.
TEST(Engine, OtherThreadsMayCallItWhileItCallsTheProgram) {
  Ranks all(1);
  int calls = 0;
  all.run([&](Engine& engine) {
    std::vector<double> first(1, 1.0);
    std::vector<double> second(1, 2.0);
    OperationPtr next;
    all.world().before_batches([&](int) {
      std::thread([&] {
        if (calls++ == 0) {
          next = submit_sum(engine, "second", second);
        } else {
          EXPECT_FALSE(engine.wait(*next, TimePoint{}));
        }
      }).join();
    });
    wait(engine, submit_sum(engine, "first", first, true));
    wait(engine, next);
    EXPECT_EQ(calls, 2);
  });
}

TEST(Engine, NoTimelineStartsInASessionThatThisRankHasLeft) {
  Ranks(1).run([](Engine& engine) {
    engine.leave(true, "");
    EXPECT_THROW(engine.start_timeline(nullptr), ShutDown);
  });
}

}  // namespace
}  // namespace kolo::internal::session
