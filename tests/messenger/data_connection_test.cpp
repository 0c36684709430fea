// SPDX-License-Identifier: Apache-2.0
// Connections for data between ranks: descriptors, callers that are late, ranks without the secret.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "data_world.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(DataConnection, LeavesNoDescriptors) {
  int before = 0;
  for (int round = 0; round < 4; ++round) {
    {
      DataWorld world(4);
      for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
      for (int rank = 0; rank < 2; ++rank) world.rank(rank).close(0ns);
      world.rank(3).progress();
    }
    if (round == 0) before = open_descriptors();
  }
  EXPECT_EQ(open_descriptors(), before);
}

// The answer is there when it runs again.
TEST(DataConnection, ACallerThatWasStoppedForLongIsConnected) {
  DataWorld world(2, 5s, {loopback(1), loopback(2)});
  std::atomic<bool> stopped{false};
  const std::vector<std::string> problems = world.connect([&](int rank) {
    if (rank == 1 && !stopped.exchange(true)) std::this_thread::sleep_for(1500ms);
  });
  EXPECT_THAT(problems, testing::Each(""));
}

TEST(DataConnection, ARankWithoutTheSecretIsNotLetIn) {
  DataWorld world(3, 2s, {loopback()}, encrypts_under_test(), {0, 0, 5});
  const std::vector<std::string> problems = world.connect();
  EXPECT_THAT(problems[0], HasSubstr("rank 2"));
  EXPECT_THAT(problems[1], HasSubstr("rank 2"));
  EXPECT_THAT(problems[2], HasSubstr("rank 0 "));
}

}  // namespace
}  // namespace kolo::internal::messenger
