// SPDX-License-Identifier: Apache-2.0
// Sessions that a rank leaves, and failures of operations and backends, on all threads of all
// ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "engine_ranks.hpp"
#include "kolo/error.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {
namespace {

using test::error_of;
using test::Ranks;
using test::submit_sum;
using test::wait;
using testing::HasSubstr;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The time that the working rank takes is many times as long as the warning's interval.
TEST(Engine, ARankThatHasLeftReportsTheOthersOnce) {
  testing::internal::CaptureStderr();
  Ranks(2, {.stall_warning = std::chrono::milliseconds(5)}).run([](Engine& engine) {
    if (engine.topology().rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  const std::string log = testing::internal::GetCapturedStderr();
  // The status of the working rank may change a few times, if the machine is busy.
  EXPECT_LE(count_of(log, "still waits for other ranks to leave"), 10) << log;
}

TEST(Engine, EveryWaitingThreadLearnsThatARankLeft) {
  constexpr int leaver = 1;
  Ranks(4).run([&](Engine& engine) {
    if (engine.topology().rank == leaver) return engine.leave(false, "for the test");
    std::vector<std::thread> threads;
    for (int user = 0; user < 3; ++user) {
      threads.emplace_back([&, user] {
        std::vector<double> tensor(4);
        const std::string message =
            error_of(engine, submit_sum(engine, "user" + std::to_string(user), tensor, true));
        EXPECT_THAT(message, HasSubstr("rank 1 left the session: for the test"));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Engine, AnOperationPendingAtShutdownIsAnswered) {
  std::vector<OperationPtr> operations(2);
  std::vector<double> tensor(4);
  Ranks(2).run([&](Engine& engine) {
    if (engine.topology().rank == 1) operations[1] = submit_sum(engine, "alone", tensor);
  });
  ASSERT_TRUE(operations[1]->done());
  EXPECT_TRUE(operations[1]->error());
}

TEST(Engine, AStallEndsWaitsOnAllRanks) {
  Ranks(3, {.stall_warning = {}, .stall_shutdown = std::chrono::milliseconds(200)})
      .run([&](Engine& engine) {
        // Rank 2 waits for another name than the others: none of it can ever complete.
        std::vector<double> tensor(4);
        const bool odd = engine.topology().rank == 2;
        const std::string message =
            error_of(engine, submit_sum(engine, odd ? "odd" : "even", tensor, true));
        EXPECT_THAT(message, testing::AnyOf(HasSubstr("not submitted by rank"),
                                            HasSubstr("the session was ended because rank")));
      });
}

TEST(Engine, AnErrorOfOneRanksBackendNamesItOnAllOthers) {
  Ranks ranks(3);
  ranks.world().break_backend(1);
  ranks.run([&](Engine& engine) {
    std::vector<double> tensor(4);
    const OperationPtr operation = submit_sum(engine, "gradient", tensor, true);
    try {
      wait(engine, operation);
      // It may have been reduced before the others learned of it.
      EXPECT_NE(engine.topology().rank, 1);
      wait(engine, submit_sum(engine, "gradient", tensor, true));
      ADD_FAILURE() << "nobody told rank " << engine.topology().rank;
    } catch (const Error& error) {
      const bool broken = engine.topology().rank == 1;
      EXPECT_EQ(dynamic_cast<const BackendError*>(&error) != nullptr, broken) << error.what();
      EXPECT_EQ(dynamic_cast<const PeerLeft*>(&error) != nullptr, !broken) << error.what();
      EXPECT_EQ(error.tensor(), "gradient");
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
      EXPECT_THAT(error.what(), HasSubstr("allreduce \"gradient\""));
      EXPECT_THAT(error.what(), HasSubstr("the cable is cut"));
    }
  });
}

TEST(Engine, AnErrorWhileABatchIsPreparedNamesItToo) {
  Ranks ranks(2);
  ranks.world().break_preparation(1);
  ranks.run([&](Engine& engine) {
    std::vector<double> tensor(4);
    std::string message;
    // Rank 1 prepares a batch as soon as it waits for rank 0 in a plan.
    while (message.empty()) {
      if (engine.topology().rank == 0)
        for (int i = 0; i < 20; ++i) std::this_thread::yield();
      if (const std::string error = error_of(engine, submit_sum(engine, "gradient", tensor, true));
          error != "none")
        message = error;
    }
    EXPECT_THAT(message, HasSubstr("(allreduce \"gradient\""));
    EXPECT_THAT(message, HasSubstr("the cable is cut"));
  });
}

}  // namespace
}  // namespace kolo::internal::session
