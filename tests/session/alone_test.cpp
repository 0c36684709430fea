// SPDX-License-Identifier: Apache-2.0
// A program that was not started by mpirun is a job of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::ElementsAre;

/// The terminate handler announces the end of the process, although the thread may hold any lock:
/// an exception that no handler catches runs no destructor. On a thread, because a death test has
/// one.
TEST(AloneDeathTest, ASecondSessionThatNobodyRefusesEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(std::thread([] {
                 init();
                 init();
               }).join(),
               "this rank leaves the session: an uncaught exception: a session is open already");
}

TEST(Alone, EveryOperationWorks) {
  const Session session;
  EXPECT_EQ(rank(), 0);
  EXPECT_EQ(size(), 1);
  EXPECT_EQ(local_rank(), 0);
  EXPECT_EQ(local_size(), 1);
  EXPECT_EQ(cross_rank(), 0);
  EXPECT_EQ(cross_size(), 1);
  EXPECT_TRUE(homogeneous());
  std::vector<float> tensor{1.0F, 2.0F};
  allreduce(tensor, {.postscale = 2.0});
  EXPECT_THAT(tensor, ElementsAre(2.0F, 4.0F));
  allreduce(tensor, {.op = ReduceOp::adasum});
  grouped_allreduce({tensor});
  broadcast(tensor, 0);
  EXPECT_THAT(tensor, ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(allgather(tensor).values, ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(alltoall(tensor).values, ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(reducescatter(tensor), ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(allgather(std::string("text")), ElementsAre("text"));
  EXPECT_EQ(join(), 0);
  EXPECT_EQ(add_process_set({0}).size(), 1);
  barrier();
}

TEST(Alone, SessionsFollowEachOther) {
  for (int round = 0; round < 3; ++round) {
    const Session session;
    std::vector<double> tensor(10, round);
    allreduce(tensor, {.name = "tensor"});
    EXPECT_THAT(tensor, Each(round));
  }
}

}  // namespace
}  // namespace kolo::internal
