// SPDX-License-Identifier: Apache-2.0
// GPU tensors staged through the host: batches are cut into chunks, chunks overlap, and a warning
// explains the slow path.
#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <vector>

#include "backend/gpu/staged/staged.hpp"
#include "base/dtype.hpp"
#include "gpu_world.hpp"
#include "nccl/nccl_fixture.hpp"

namespace kolo::internal::backend {
namespace {

using Chunks = std::vector<std::vector<gpu::ElementRange>>;

std::int64_t bytes_of(const std::vector<gpu::ElementRange>& chunk) {
  std::int64_t bytes = 0;
  for (const gpu::ElementRange& range : chunk)
    bytes += range.elements * signed_size_of(range.tensor->dtype);
  return bytes;
}

class CutTest : public testing::Test {
 protected:
  BatchTensor& add(std::int64_t elements, DType dtype) {
    return members_.emplace_back(BatchTensor{.dtype = dtype, .rows = elements});
  }
  [[nodiscard]] Chunks cut(const Descriptor& kind, std::int64_t least) {
    Batch batch{.kind = kind, .tensors = {}, .set = {0}, .ranks = {0}};
    for (const BatchTensor& member : members_) batch.tensors.push_back(&member);
    return gpu::cut_into_chunks(batch, least);
  }

  static constexpr std::int64_t most = Batch::parts - 1;
  Descriptor allreduce_{.type = OperationType::allreduce};
  std::deque<BatchTensor> members_{};
};

TEST_F(CutTest, EveryElementTravelsOnceAndInOrder) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    members_.clear();
    const std::size_t count = 1 + random() % 20;
    for (std::size_t i = 0; i < count; ++i)
      add(static_cast<std::int64_t>(random() % 1000),
          static_cast<DType>(random() % (static_cast<std::size_t>(DType::boolean) + 1)));
    const auto least = static_cast<std::int64_t>(1 + random() % 3000);
    const Chunks chunks = cut(allreduce_, least);
    ASSERT_LE(std::ssize(chunks), most);
    auto member = members_.begin();
    std::int64_t next = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (i + 1 < chunks.size()) {
        ASSERT_GT(bytes_of(chunks[i]), least - 8);  // what no element fits into
      }
      for (const gpu::ElementRange& range : chunks[i]) {
        if (range.first == 0 && next > 0) {
          ASSERT_EQ(next, member->elements());
          ++member;
          next = 0;
        }
        while (&*member != range.tensor && member->elements() == next) ++member, next = 0;
        ASSERT_EQ(range.tensor, &*member);
        ASSERT_EQ(range.first, next);
        next += range.elements;
      }
    }
    ASSERT_EQ(member, std::prev(members_.end()));
    ASSERT_EQ(next, member->elements());
  }
}

TEST_F(CutTest, ALongTensorIsManyChunksAndAShortOneIsOne) {
  add(8000, DType::f32);
  EXPECT_EQ(cut(allreduce_, 8000).size(), 4U);
  EXPECT_EQ(std::ssize(cut(allreduce_, 1)), most);
  EXPECT_EQ(cut(allreduce_, 32000).size(), 1U);
}

TEST_F(CutTest, WhatCannotGoApartIsOneChunk) {
  add(8000, DType::f32);
  Descriptor adasum = allreduce_;
  adasum.op = ReduceOp::adasum;
  EXPECT_EQ(cut(adasum, 100).size(), 1U);
  for (const OperationType type :
       {OperationType::allgather, OperationType::alltoall, OperationType::reducescatter})
    EXPECT_EQ(cut({.type = type}, 100).size(), 1U);
}

class StagedTest : public testing::TestWithParam<int> {};

/// Only the first copy to the host is let through: its chunk is back on the GPU before the next has
/// left it.
TEST_P(StagedTest, AChunkIsReducedWhileTheNextIsCopied) {
  constexpr std::int64_t elements = 300000;
  const int ranks = GetParam();
  GpuWorld world({.ranks = ranks, .with_nccl = false, .backend = {.chunk_bytes = 400000}});
  std::vector<GpuTensors<float>> tensors;
  std::vector<std::unique_ptr<Execution>> running;
  for (int rank = 0; rank < ranks; ++rank) {
    world.rank(rank).cuda->max_copies_to_host = 1;
    tensors
        .emplace_back(
            world, rank, std::vector{elements},
            [rank](std::size_t, std::int64_t k) { return static_cast<float>(rank + k % 3); })
        .set_type(DType::f32);
    Batch batch{.kind = {.type = OperationType::allreduce, .op = ReduceOp::sum, .device = gpu_zero},
                .tensors = {},
                .set = GpuWorld::numbers(ranks),
                .ranks = GpuWorld::numbers(ranks)};
    tensors.back().add_to(batch);
    running.push_back(world.rank(rank).backend->start(std::move(batch)));
  }
  const auto wanted = [&](std::int64_t k) {
    return static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (k % 3));
  };
  const auto first_is_back = [&] {
    return std::ranges::all_of(
        tensors, [&](const auto& own) { return own.output(0)[99999] == wanted(99999); });
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!first_is_back()) {
    for (auto& execution : running) ASSERT_NE(execution->step(), Progress::done);
    for (int rank = 0; rank < ranks; ++rank) world.rank(rank).cuda->advance();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it waits for all of the tensor";
  }
  for (int rank = 0; rank < ranks; ++rank) world.rank(rank).cuda->max_copies_to_host = 10;
  ASSERT_TRUE(world.finish(running));
  for (const auto& own : tensors)
    for (std::int64_t k = 0; k < elements; ++k) ASSERT_EQ(own.output(0)[k], wanted(k));
}

INSTANTIATE_TEST_SUITE_P(Ranks, StagedTest, testing::Values(1, 2, 3, 4));

/// The warnings of all ranks during two batches.
std::string warnings_of(const WorldOptions& options) {
  testing::internal::CaptureStderr();
  GpuWorld world(options);
  for (std::uint64_t sequence = 0; sequence < 2; ++sequence) {
    Allreduces batch(world, {8});
    batch.start(allreduce_of(ReduceOp::sum), sequence);
    EXPECT_TRUE(batch.finish());
  }
  return testing::internal::GetCapturedStderr();
}

TEST(StagedWarning, SaysOnceWhyNcclIsNotUsed) {
  const std::string begin =
      "[kolo] warning: GPU tensors of ranks 0-1 are staged through host memory: ";
  EXPECT_EQ(warnings_of({.ranks = 2, .with_nccl = false}),
            begin + "rank 0: this build of Kolo is without NCCL\n");
  EXPECT_EQ(warnings_of({.ranks = 2, .nccl_error = "NCCL 2.17.1 is not supported"}),
            begin + "rank 0: NCCL 2.17.1 is not supported\n");
  EXPECT_THAT(warnings_of({.ranks = 2, .share_a_gpu = true}),
              testing::StartsWith(begin + "ranks 0 and 1 use the same GPU"));
}

TEST(StagedWarning, IsNotWrittenOverNcclNorIfTheUserForbidsNccl) {
  EXPECT_EQ(warnings_of({.ranks = 2}), "");
  WorldOptions options{.ranks = 2};
  options.settings.gpu_operations = GpuOperations::staged;
  EXPECT_EQ(warnings_of(options), "");
}

}  // namespace
}  // namespace kolo::internal::backend
