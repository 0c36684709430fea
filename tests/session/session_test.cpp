// SPDX-License-Identifier: Apache-2.0
// The life of a session, and what its queries say, at any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>

#include "kolo/kolo.hpp"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

TEST(Session, QueriesAgreeWithMpi) {
  const Session session;
  EXPECT_TRUE(initialized());
  EXPECT_EQ(rank(), world_rank());
  EXPECT_EQ(size(), world_size());
  EXPECT_EQ(local_rank(), world_rank());  // the tests run on one host
  EXPECT_EQ(local_size(), world_size());
  EXPECT_EQ(cross_rank(), 0);
  EXPECT_EQ(cross_size(), 1);
  EXPECT_TRUE(homogeneous());
}

TEST(Session, OutsideASessionNothingWorksButBuildInfo) {
  EXPECT_FALSE(initialized());
  EXPECT_THROW((void)rank(), NotInitialized);
  EXPECT_THROW((void)local_size(), NotInitialized);
  EXPECT_THROW(barrier(), NotInitialized);
  EXPECT_EQ(build_info().version, version);
  EXPECT_FALSE(build_info().mpi_library.empty());
  shutdown();  // does nothing
}

TEST(Session, SessionsCanFollowEachOther) {
  for (int round = 0; round < 3; ++round) {
    init();
    double value = rank() + round;
    allreduce(value, {.name = "value", .op = ReduceOp::sum});
    EXPECT_EQ(value, size() * (size() - 1) / 2 + round * size());
    shutdown();
    shutdown();
    EXPECT_FALSE(initialized());
  }
}

TEST(Session, ASecondOneIsRefusedAndTheFirstGoesOn) {
  const Session session;
  EXPECT_THROW(init(), InvalidArgument);
  EXPECT_THROW(Session{}, InvalidArgument);
  barrier();
}

TEST(Session, OneRanksBadSettingIsAnErrorOnAllThatNamesIt) {
  const int odd = world_size() - 1;
  if (world_rank() == odd) setenv("KOLO_FUSION_THRESHOLD", "lots", 1);
  try {
    init();
    ADD_FAILURE() << "the setting was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("rank " + std::to_string(odd) + ": KOLO_FUSION_THRESHOLD=lots"));
    EXPECT_EQ(error.ranks(), std::vector<int>{odd});
  }
  unsetenv("KOLO_FUSION_THRESHOLD");
  init();  // and the process may try again
  barrier();
  shutdown();
}

TEST(Session, WhatIsPendingAtShutdownFailsAndSaysSo) {
  init();
  std::vector<float> tensor(8, 1.0F);
  Future<void> future;
  if (rank() == 0) future = allreduce_async(tensor, {.name = "alone"});
  const bool one = size() == 1;
  shutdown();
  if (world_rank() != 0) return;
  if (one) return future.wait();
  // This rank left, or another did before: either way the operation is answered and named.
  EXPECT_THROW(
      try { future.wait(); } catch (const Error& error) {
        EXPECT_EQ(error.tensor(), "alone");
        EXPECT_THAT(error.what(), HasSubstr("\"alone\""));
        throw;
      },
      Error);
}

}  // namespace
}  // namespace kolo::internal
