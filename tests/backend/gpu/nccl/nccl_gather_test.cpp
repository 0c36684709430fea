// SPDX-License-Identifier: Apache-2.0
// Allgathers over NCCL: the number of calls, and operations for which the driver does not wait.
#include <gmock/gmock.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nccl_fixture.hpp"

namespace kolo::internal::backend {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::int64_t row_elements = 3;

/// An allgather of tensors of which the m-th has `rows(rank, m)` rows.
class Gathers {
 public:
  using Rows = std::int64_t (*)(int rank, std::size_t m);

  Gathers(GpuWorld& world, std::size_t tensors, Rows rows)
      : world_(world), tensors_(tensors), rows_(rows) {
    for (int rank = 0; rank < world.size(); ++rank) start(rank);
  }
  ~Gathers() {
    for (auto& [rank, memory] : memory_) world_.rank(rank).cuda->free_memory(memory);
  }
  Gathers(const Gathers&) = delete;
  Gathers& operator=(const Gathers&) = delete;

  void expect_rows() {
    ASSERT_TRUE(world_.finish(running));
    for (const auto& [rank, outputs] : outputs_)
      for (std::size_t m = 0; m < tensors_; ++m) {
        const std::int32_t* next = outputs[m];
        for (int from = 0; from < world_.size(); ++from)
          for (std::int64_t k = 0; k < rows_(from, m) * row_elements; ++k)
            ASSERT_EQ(*next++, element(from, m, k)) << "rank " << rank << ", tensor " << m;
      }
  }

  Running running{};

 private:
  static std::int32_t element(int rank, std::size_t m, std::int64_t k) {
    return rank * 1000000 + static_cast<std::int32_t>(m) * 1000 +
           static_cast<std::int32_t>(k % 997);
  }

  std::int32_t* make(int rank, std::int64_t rows) {
    const auto bytes = static_cast<std::size_t>(rows * row_elements) * sizeof(std::int32_t);
    std::byte* const memory = world_.rank(rank).cuda->make_memory(bytes);
    memory_.emplace_back(rank, memory);
    return reinterpret_cast<std::int32_t*>(memory);
  }

  void start(int rank) {
    std::vector<std::int32_t*>& outputs = outputs_[rank];
    outputs.resize(tensors_);
    std::deque<BatchTensor>& members = members_[rank];
    for (std::size_t m = 0; m < tensors_; ++m) {
      const std::int64_t rows = rows_(rank, m);
      std::int32_t* const input = make(rank, rows);
      world_.produce(rank, [=] {
        for (std::int64_t k = 0; k < rows * row_elements; ++k) input[k] = element(rank, m, k);
        return true;
      });
      BatchTensor& member = members.emplace_back();
      member.input = input;
      member.dtype = DType::i32;
      member.rows = rows;
      member.row_elements = row_elements;
      member.allocate = [this, rank, m, &outputs](std::span<const std::int64_t> all) -> void* {
        std::int64_t sum = 0;
        for (const std::int64_t each : all) sum += each;
        return outputs[m] = make(rank, sum);
      };
    }
    Batch batch =
        batch_of({.type = OperationType::allgather, .device = gpu_zero}, world_.size(), 0);
    for (BatchTensor& member : members) {
      member.ready = world_.mark(rank);
      batch.tensors.push_back(&member);
    }
    running.push_back(world_.rank(rank).backend->start(std::move(batch)));
  }

  GpuWorld& world_;
  std::size_t tensors_;
  Rows rows_;
  std::map<int, std::deque<BatchTensor>> members_{};
  std::map<int, std::vector<std::int32_t*>> outputs_{};
  std::vector<std::pair<int, std::byte*>> memory_{};
};

class NcclGather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclGather, testing::Values(1, 2, 3, 4));

TEST_P(NcclGather, ManyTensorsOfUnevenRowsTakeOneCall) {
  GpuWorld world({.ranks = GetParam()});
  constexpr std::size_t tensors = 200;
  const auto rows = [](int rank, std::size_t m) -> std::int64_t {
    return (rank + static_cast<std::int64_t>(m)) % 5;
  };
  Gathers gathers(world, tensors, rows);
  gathers.expect_rows();
  const auto segments_of = [&](int rank) {
    int segments = 0;
    for (std::size_t m = 0; m < tensors; ++m) segments += rows(rank, m) > 0 ? 1 : 0;
    return segments;
  };
  const auto launches = [](int segments) {
    constexpr int most = gpu::TransferTable::max_count;
    return (segments + most - 1) / most;
  };
  int all = 0;
  for (int rank = 0; rank < world.size(); ++rank) all += segments_of(rank);
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_THAT(world.rank(rank).nccl->calls(), SizeIs(1));
    EXPECT_EQ(world.rank(rank).cuda->launches(), launches(segments_of(rank)) + launches(all));
  }
}

/// Padding would move all ranks' worth of the one that has most.
TEST_P(NcclGather, RowsOfOneRankTakeACallForEachRank) {
  GpuWorld world({.ranks = GetParam()});
  Gathers gathers(world, 50,
                  [](int rank, std::size_t) -> std::int64_t { return rank == 0 ? 100 : 1; });
  gathers.expect_rows();
  const auto& calls = world.rank(0).nccl->calls();
  if (GetParam() <= 2) {
    EXPECT_THAT(calls, SizeIs(1));
  } else {
    EXPECT_THAT(calls, SizeIs(static_cast<std::size_t>(GetParam())));
    EXPECT_THAT(calls, Each(StartsWith("broadcast")));
  }
}

TEST_P(NcclGather, OneTensorOfEvenRowsStaysInPlace) {
  GpuWorld world({.ranks = GetParam()});
  Gathers gathers(world, 1, [](int, std::size_t) -> std::int64_t { return 7; });
  gathers.expect_rows();
  EXPECT_THAT(world.rank(0).nccl->calls(), testing::ElementsAre(HasSubstr("all_gather of 84")));
  EXPECT_EQ(world.rank(0).cuda->launches(), 0);
}

TEST(NcclGatherLarge, ALargeTensorIsNotPacked) {
  GpuWorld world({.ranks = 2});
  Gathers gathers(world, 2, [](int rank, std::size_t m) -> std::int64_t {
    return m == 0 ? 200000 + 1000 * rank : rank + 1;
  });
  gathers.expect_rows();
  EXPECT_THAT(world.rank(0).nccl->calls(), SizeIs(3)) << "a broadcast of each rank, and one call";
  EXPECT_EQ(world.rank(0).nccl->peak_bytes(), 1U << 20);
}

/// ncclGetUniqueId looks for networks and opens a socket.
TEST(NcclPreparation, TheDriverDoesNotWaitForAUniqueId) {
  GpuWorld world({.ranks = 2});
  world.rank(0).nccl->holds_ids = true;
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  for (int i = 0; i < 100; ++i)
    for (auto& execution : batch.running) ASSERT_NE(execution->step(), Progress::done);
  EXPECT_EQ(world.rank(0).nccl->inits(), 0);
  world.rank(0).nccl->holds_ids = false;
  ASSERT_TRUE(batch.finish());
  batch.expect_sums(1.0);
}

/// It is reported as the error of the batch that needs NCCL, though another notices it.
TEST(NcclPreparation, AnErrorIsThatOfTheFirstBatchHeldBack) {
  GpuWorld world({.ranks = 1});
  world.rank(0).nccl->holds_ids = true;
  world.rank(0).cuda->faults.plan("ncclGetUniqueId", 0);
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  const auto barrier = [&](std::uint64_t sequence) {
    return world.rank(0).backend->start({.kind = {.type = OperationType::barrier},
                                         .tensors = {},
                                         .set = {0},
                                         .ranks = {0},
                                         .sequence = sequence});
  };
  const auto second = barrier(1);
  ASSERT_EQ(second->step(), Progress::waiting);
  world.rank(0).nccl->holds_ids = false;
  while (second->step() == Progress::waiting) std::this_thread::yield();
  const auto third = barrier(2);
  EXPECT_EQ(third->step(), Progress::waiting);
  EXPECT_THAT([&] { (void)batch.running.front()->step(); },
              testing::ThrowsMessage<BackendError>(
                  testing::HasSubstr("on rank 0, cuda:0: ncclGetUniqueId failed")));
  batch.running.clear();
}

}  // namespace
}  // namespace kolo::internal::backend
