// SPDX-License-Identifier: Apache-2.0
// Results do not depend on the settings of a session.
#include <cstdlib>
#include <limits>
#include <vector>

#include "../support/world.hpp"
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;

class AnySession : public testing::TestWithParam<std::int64_t> {
 protected:
  /// More names than a small cache holds, of several kinds, with lengths that change between steps.
  static void train() {
    constexpr int names = 12;
    const int n = size();
    const int sum = n * (n - 1) / 2;
    for (int step = 0; step < 12; ++step) {
      std::vector<std::vector<float>> tensors;
      for (int i = 0; i < names; ++i) {
        const int length = i % 3 == 0 ? 5 + step / 4 : 100 * i;
        tensors.emplace_back(static_cast<std::size_t>(length), static_cast<float>(rank() + step));
      }
      std::vector<Future<void>> futures;
      for (int k = 0; k < names; ++k) {
        const int i = rank() % 2 == 0 ? k : names - 1 - k;
        futures.push_back(allreduce_async(tensors[static_cast<std::size_t>(i)],
                                          {.name = std::to_string(i), .op = ReduceOp::sum}));
      }
      std::int64_t one = 1;
      std::vector<double> two(3, 2.0);
      grouped_allreduce({one, two},
                        {.name = "group", .op = ReduceOp::sum, .fuse_exactly = step % 2 == 0});
      const std::vector<std::int32_t> rows(static_cast<std::size_t>(rank()), step);
      const Gathered<std::int32_t> gathered = allgather(rows, {.name = "rows"});
      std::int64_t told = rank();
      broadcast(told, step % n, {.name = "told"});
      for (Future<void>& future : futures) future.wait();
      for (const std::vector<float>& tensor : tensors)
        EXPECT_THAT(tensor, Each(static_cast<float>(sum + n * step)));
      EXPECT_EQ(one, n);
      EXPECT_THAT(two, Each(2.0 * n));
      EXPECT_EQ(gathered.values, std::vector<std::int32_t>(static_cast<std::size_t>(sum), step));
      EXPECT_EQ(told, step % n);
    }
  }

  /// A mismatch of a name that is known, and joins.
  static void stumble() {
    std::vector<float> tensor(8, 1.0F);
    allreduce(tensor, {.name = "known"});
    allreduce(tensor, {.name = "known"});
    if (size() > 1) {
      const std::span some(tensor.data(), rank() == 0 ? 7 : 8);
      EXPECT_THROW(allreduce(some, {.name = "known"}), Mismatch);
    }
    allreduce(tensor, {.name = "known"});
    EXPECT_THAT(tensor, Each(1.0F));
    if (rank() > 0) {
      allreduce(tensor, {.name = "known", .average_over = AverageOver::present});
      EXPECT_EQ(allgather(tensor, {.name = "rows"}).counts.front(), 0);
    }
    (void)join();
    allreduce(tensor, {.name = "known"});
    EXPECT_THAT(tensor, Each(1.0F));
  }
};

class AnyCacheCapacity : public AnySession {};
TEST_P(AnyCacheCapacity, TheResultsAreTheSame) {
  const Session session({.cache_capacity = GetParam()});
  train();
  stumble();
  train();
}
INSTANTIATE_TEST_SUITE_P(Names, AnyCacheCapacity, testing::Values(0, 1, 2, 8, 8192));

class AnyFusionThreshold : public AnySession {};
TEST_P(AnyFusionThreshold, TheResultsAreTheSame) {
  const Session session({.fusion_threshold = GetParam()});
  train();
  stumble();
}
INSTANTIATE_TEST_SUITE_P(Bytes, AnyFusionThreshold,
                         testing::Values(0, 1, 100, 4096, std::int64_t{1} << 40U,
                                         std::numeric_limits<std::int64_t>::max()));

class AnyCpuOperations : public AnySession {
 protected:
  static constexpr const char* names[] = {"auto", "shm", "mpi"};
};
TEST_P(AnyCpuOperations, TheResultsAreTheSame) {
  const Session session({.cpu_operations = names[GetParam()]});
  train();
  stumble();
}
INSTANTIATE_TEST_SUITE_P(Of, AnyCpuOperations, testing::Values(0, 1, 2));

class CpuOperationsOfRanks : public AnySession {
 protected:
  const int world_rank_ = world_rank();
  const int world_size_ = world_size();
};

TEST_F(CpuOperationsOfRanks, OneThatWantsMpiDecides) {
  for (const int decider : {0, world_size_ - 1}) {
    const Session session({.cpu_operations = world_rank_ == decider ? "mpi" : "auto"});
    train();
  }
}

// With hosts of two, so that one host lacks shared memory and, from three ranks on, another has it.
TEST_F(CpuOperationsOfRanks, HostsWithAndWithoutSharedMemoryTrainTogether) {
  setenv("KOLO_TEST_RANKS_PER_HOST", "2", 1);
  for (const int without : {0, world_size_ - 1}) {
    const Session session({.cpu_operations = world_rank_ == without ? "mpi" : "auto"});
    train();
    std::vector<float> large(300'000, static_cast<float>(rank() + 1));
    allreduce(large, {.name = "large", .op = ReduceOp::sum});
    EXPECT_THAT(large, Each(static_cast<float>(size() * (size() + 1) / 2)));
  }
  unsetenv("KOLO_TEST_RANKS_PER_HOST");
}

TEST_F(CpuOperationsOfRanks, ADemandThatCannotBeMetIsRefusedOnAll) {
  // The last rank wants MPI, which the others of its host do not bear.
  if (world_size_ == 1) return;
  const bool differs = world_rank_ == world_size_ - 1;
  const auto refused =
      thrown_by<InvalidArgument>([&] { init({.cpu_operations = differs ? "mpi" : "shm"}); });
  EXPECT_THAT(refused.what(),
              testing::HasSubstr("cpu_operations is shm, but the ranks of this host cannot share "
                                 "memory: a rank of this host has cpu_operations=mpi"));
  std::vector<int> demanding;
  for (int rank = 0; rank + 1 < world_size_; ++rank) demanding.push_back(rank);
  EXPECT_EQ(refused.ranks(), demanding);
  EXPECT_FALSE(initialized());
  const Session session({.cpu_operations = "shm"});
  train();
}

TEST_F(CpuOperationsOfRanks, NcclIsNotUsedWhereTheNetworkIsEncrypted) {
  if (world_size_ == 1) return;
  const auto refused = thrown_by<InvalidArgument>(
      [&] { init({.cpu_operations = "mpi", .network = "encrypted", .gpu_operations = "nccl"}); });
  EXPECT_THAT(refused.what(),
              testing::HasSubstr("gpu_operations is nccl, and NCCL does not encrypt"));
  const Session session({.cpu_operations = "mpi", .network = "encrypted"});
  EXPECT_EQ(cpu_operations(), "sockets");
  train();
  stumble();
}

TEST(SessionOptions, MayDifferBetweenRanks) {
  for (const bool at_root : {false, true}) {
    const bool small = (world_rank() == 0) == at_root;
    const Session session(
        {.fusion_threshold = small ? 0 : 1 << 20, .cache_capacity = small ? 1 : 100});
    std::vector<std::vector<double>> tensors(10, std::vector<double>(100, rank()));
    for (int step = 0; step < 4; ++step) {
      std::vector<Future<void>> futures;
      for (std::size_t i = 0; i < tensors.size(); ++i)
        futures.push_back(
            allreduce_async(tensors[i], {.name = std::to_string(i), .op = ReduceOp::max}));
      for (Future<void>& future : futures) future.wait();
    }
    for (const std::vector<double>& tensor : tensors) EXPECT_THAT(tensor, Each(size() - 1));
  }
}

}  // namespace
}  // namespace kolo::internal
