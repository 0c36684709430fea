// SPDX-License-Identifier: Apache-2.0
// The lifetime of a session, and its queries, at any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../support/world.hpp"
#include "kolo/kolo.hpp"

#ifdef KOLO_TEST_MPI
namespace {

std::mutex freed_mutex;
std::set<std::thread::id> threads_that_freed;

}  // namespace

// Recorded, then done.
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  {
    const std::lock_guard lock(freed_mutex);
    threads_that_freed.insert(std::this_thread::get_id());
  }
  return PMPI_Comm_free(comm);
}
#endif

namespace kolo::internal {
namespace {

using testing::HasSubstr;

TEST(Session, QueriesAgreeWithTheLauncher) {
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
#ifdef KOLO_TEST_MPI
  EXPECT_FALSE(build_info().mpi_library.empty());
#else
  EXPECT_TRUE(build_info().mpi_library.empty());
#endif
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
  EXPECT_THROW(const Session second, InvalidArgument);
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

/// The numbers of open descriptors and of mappings of shared memory.
std::pair<int, int> resources() {
  int descriptors = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++descriptors;
  int mappings = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd") != std::string::npos) ++mappings;
  return {descriptors, mappings};
}

TEST(Session, AFutureThatOutlivesItKeepsNothingOfIt) {
  float value = 1.0F;
  Future<void> kept;
  std::pair<int, int> before;
  for (const bool keep : {false, true}) {
    init();
    {
      Future<void> future = allreduce_async(value);
      future.wait();
      if (keep) kept = std::move(future);
    }
    shutdown();
    if (!keep) before = resources();
  }
  EXPECT_EQ(resources(), before);
  EXPECT_TRUE(kept.ready());
  kept.get();
}

#ifdef KOLO_TEST_MPI
TEST(Session, TheThreadThatEndsItFreesItsCommunicators) {
  init();
  const std::string name = "of rank " + std::to_string(rank()) + " only";
  std::latch submitted(1);
  std::latch over(1);
  std::thread other([&] {
    Future<void> future = barrier_async({.name = name});
    submitted.count_down();
    try {
      future.wait();
    } catch (const Error&) {  // the session ends, unless this rank is alone
    }
    over.wait();
  });
  submitted.wait();
  threads_that_freed.clear();
  shutdown();
  EXPECT_THAT(threads_that_freed, testing::ElementsAre(std::this_thread::get_id()));
  over.count_down();
  other.join();
  EXPECT_THAT(threads_that_freed, testing::ElementsAre(std::this_thread::get_id()));
}
#endif

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
