// SPDX-License-Identifier: Apache-2.0
// The use of NCCL for batches of GPU tensors: the calls and their order, and the effects of calls
// that fail or never end.
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/half.hpp"
#include "kolo/error.hpp"
#include "nccl_fixture.hpp"

namespace kolo::internal::backend {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

class NcclTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclTest, testing::Values(1, 2, 3, 4));

TEST_P(NcclTest, ABatchOfAThousandTensorsTakesFewLaunchesNoUploadAndOneCall) {
  GpuWorld world({.ranks = GetParam()});
  Allreduces batch(world, Lengths(1000, 33));
  constexpr int most = gpu::TransferTable::max_count;
  constexpr int tables = (1000 + most - 1) / most;
  batch.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(batch.finish());
  batch.expect_sums(1.0);
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world.rank(rank).cuda->launches(), 2 * tables);
    EXPECT_EQ(world.rank(rank).cuda->copies_to_device(), 0);
    EXPECT_THAT(world.rank(rank).nccl->calls(), SizeIs(1));
  }
}

TEST_P(NcclTest, NcclOnlyAddsAndTheKernelScales) {
  GpuWorld world({.ranks = GetParam()});
  Descriptor average = allreduce_of(ReduceOp::average);
  Allreduces first(world, {1000});
  first.start(average, 0);
  ASSERT_TRUE(first.finish());
  first.expect_sums(1.0 / GetParam());
  average.prescale = 0.5;
  average.postscale = 3.0;
  Allreduces second(world, {1000});
  second.start(average, 1);
  ASSERT_TRUE(second.finish());
  second.expect_sums(1.5 / GetParam());
  for (int rank = 0; rank < world.size(); ++rank) {
    const int averages = GetParam() == 1 ? 0 : 1;  // the average of one is its sum
    EXPECT_EQ(world.rank(rank).cuda->launches(), averages + 2);
    EXPECT_THAT(world.rank(rank).nccl->calls(), ElementsAre(HasSubstr("op 0"), HasSubstr("op 0")));
  }
}

/// Sums of the largest numbers overflow, their averages do not.
template <typename Half>
void expect_exact_averages(int ranks, DType dtype, Half largest, Half odd) {
  GpuWorld world({.ranks = ranks});
  std::vector<GpuTensors<Half>> tensors;
  Running running;
  for (int rank = 0; rank < ranks; ++rank) {
    tensors.emplace_back(world, rank, Lengths{4, 2},
                         [=](std::size_t, std::int64_t k) { return k % 2 == 0 ? largest : odd; });
    tensors.back().set_type(dtype);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    Batch batch = batch_of(allreduce_of(ReduceOp::average), ranks, 0);
    tensors[static_cast<std::size_t>(rank)].add_to(batch);
    running.push_back(world.rank(rank).backend->start(std::move(batch)));
  }
  ASSERT_TRUE(world.finish(running));
  for (const auto& own : tensors)
    for (std::int64_t k = 0; k < 4; ++k)
      ASSERT_EQ(to_float(own.output(0)[k]), to_float(k % 2 == 0 ? largest : odd)) << k;
}

TEST_P(NcclTest, AveragesOfEqualHalvesAreTheseHalves) {
  expect_exact_averages(GetParam(), DType::f16, to_half<F16>(32768.0F),
                        to_half<F16>(1025.0F / 1024));
  expect_exact_averages(GetParam(), DType::bf16, to_half<BF16>(256.0F),
                        to_half<BF16>(129.0F / 128));
}

TEST_P(NcclTest, MaximaAreScaledByTheKernel) {
  GpuWorld world({.ranks = GetParam()});
  Descriptor kind = allreduce_of(ReduceOp::max);
  kind.prescale = -2.0;
  Allreduces batch(world, {70});
  batch.start(kind, 0);
  ASSERT_TRUE(batch.finish());
  // All values are negative multiples of the rank's factor, so the largest is that of rank 0.
  batch.expect_sums(-2.0 / (GetParam() * (GetParam() + 1) / 2.0));
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_EQ(world.rank(rank).cuda->launches(), 1);
}

TEST_P(NcclTest, NothingIsReadBeforeItIsThere) {
  for (const bool share_a_gpu : {false, true}) {
    GpuWorld world({.ranks = GetParam(), .share_a_gpu = share_a_gpu});
    bool open = false;
    for (int rank = 0; rank < world.size(); ++rank) world.produce(rank, [&open] { return open; });
    Allreduces batch(world, {50, 60});
    batch.start(allreduce_of(ReduceOp::sum), 0);
    for (int i = 0; i < 500; ++i) {
      for (auto& execution : batch.running) ASSERT_NE(execution->step(), Progress::done);
      for (int rank = 0; rank < world.size(); ++rank) world.rank(rank).cuda->advance();
    }
    open = true;
    ASSERT_TRUE(batch.finish());
    batch.expect_sums(1.0);
  }
}

TEST_P(NcclTest, CompressedTensorsTravelAsHalves) {
  GpuWorld world({.ranks = GetParam()});
  Descriptor kind = allreduce_of(ReduceOp::sum);
  kind.compression = Compression::fp16;
  Allreduces batch(world, {100, 7});
  batch.start(kind, 0);
  ASSERT_TRUE(batch.finish());
  batch.expect_sums(1.0);
  EXPECT_THAT(world.rank(0).nccl->calls(), ElementsAre(HasSubstr("f16")));
}

TEST_P(NcclTest, ManyBatchesShareOneCommunicator) {
  GpuWorld world({.ranks = GetParam()});
  std::vector<std::unique_ptr<Allreduces>> batches;
  for (std::uint64_t sequence = 0; sequence < 5; ++sequence) {
    batches.push_back(std::make_unique<Allreduces>(world, Lengths{20, 30}));
    batches.back()->start(allreduce_of(ReduceOp::sum), sequence);
  }
  for (auto& batch : batches) ASSERT_TRUE(batch->finish());
  for (auto& batch : batches) batch->expect_sums(1.0);
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_EQ(world.rank(rank).nccl->inits(), 1);
}

TEST_P(NcclTest, EmptyTensorsNeedNoCall) {
  GpuWorld world({.ranks = GetParam()});
  Allreduces batch(world, {0, 0});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(batch.finish());
  EXPECT_THAT(world.rank(0).nccl->calls(), SizeIs(0));
}

TEST_P(NcclTest, WhatNcclCannotReduceGoesThroughTheHost) {
  GpuWorld world({.ranks = GetParam()});
  Running running;
  std::vector<GpuTensors<std::int16_t>> tensors;
  for (int rank = 0; rank < world.size(); ++rank) {
    tensors.emplace_back(world, rank, Lengths{50, 3}, [rank](std::size_t i, std::int64_t k) {
      return static_cast<std::int16_t>(element(rank, i, k));
    });
    tensors.back().set_type(DType::i16);
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    Batch batch = batch_of(allreduce_of(ReduceOp::sum), world.size(), 0);
    tensors[static_cast<std::size_t>(rank)].add_to(batch);
    running.push_back(world.rank(rank).backend->start(std::move(batch)));
  }
  ASSERT_TRUE(world.finish(running));
  for (const auto& own : tensors)
    for (std::int64_t k = 0; k < 50; ++k) ASSERT_EQ(own.output(0)[k], sum(world.size(), 0, k));
  EXPECT_THAT(world.rank(0).nccl->calls(), SizeIs(0));
}

TEST_P(NcclTest, ACommunicatorThatIsNotMadeInTimeIsAnError) {
  WorldOptions options{.ranks = GetParam()};
  options.settings.nccl_timeout = std::chrono::milliseconds(20);
  GpuWorld world(options);
  for (int rank = 0; rank < world.size(); ++rank) world.rank(rank).nccl->looks_at_init = -1;
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  const std::string failure = failure_of(world, batch.running);
  // A late rank may first see that another rank has given up.
  const auto late = HasSubstr("ncclCommInitRankConfig is not done after 0.02 s");
  if (world.size() == 1) {
    EXPECT_THAT(failure, late);
  }
  EXPECT_THAT(failure, AnyOf(late, HasSubstr("remote process exited")));
  EXPECT_THAT(failure, StartsWith("on rank "));
}

TEST_P(NcclTest, AnErrorThatComesLaterEndsTheBatch) {
  GpuWorld world({.ranks = GetParam()});
  Allreduces first(world, {8});
  first.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(first.finish());
  world.rank(0).nccl->fail_later("a call of NCCL under way failed: the network is down (6)");
  Allreduces second(world, {8});
  second.start(allreduce_of(ReduceOp::sum), 1);
  EXPECT_THAT(failure_of(world, second.running),
              AllOf(StartsWith("on rank 0, cuda:0: "), HasSubstr("the network is down")));
  // The communicator of who failed is aborted, and by that the others learn of it.
  second.running.clear();
  EXPECT_EQ(world.rank(0).nccl->inits(), 1);
}

TEST(NcclLife, ABatchThatIsAbandonedAbortsItsCommunicator) {
  std::shared_ptr<FakeNccl> nccl;
  {
    GpuWorld world({.ranks = 2});
    nccl = world.rank(0).nccl;
    Allreduces first(world, {8});
    first.start(allreduce_of(ReduceOp::sum), 0);
    ASSERT_TRUE(first.finish());
    Allreduces second(world, {8});
    second.start_on(0, allreduce_of(ReduceOp::sum), 1);  // rank 1 never comes
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(second.running.front()->step() == Progress::done, false);
    EXPECT_THAT(second.running.front()->waits_for().ranks, ElementsAre(1));
    second.running.clear();
  }
  EXPECT_EQ(nccl->aborts(), 1);
  EXPECT_EQ(nccl->communicators(), 0);
}

/// Rank 1 comes late to the first, whose kernel waits on rank 0's GPU.
TEST(NcclStreams, SetsDoNotWaitForEachOther) {
  GpuWorld world({.ranks = 3});
  const std::vector<int> slow{0, 1};
  const std::vector<int> fast{0, 2};
  const Descriptor kind = allreduce_of(ReduceOp::sum);
  for (std::uint64_t sequence = 0; sequence < 2; ++sequence) {
    Allreduces first(world, {50, 7});
    first.start_among(sequence == 0 ? slow : fast, sequence == 0 ? slow : fast, kind, sequence);
    ASSERT_TRUE(first.finish());
  }
  Allreduces late(world, {50, 7});
  late.start_on(0, kind, 2, slow, slow);
  while (late.running.front()->step() != Progress::launched) world.rank(0).cuda->advance();
  Allreduces others(world, {50, 7});
  others.start_among(fast, fast, kind, 3);
  ASSERT_TRUE(others.finish());
  late.start_on(1, kind, 2, slow, slow);
  ASSERT_TRUE(late.finish());
}

/// As a program that captures in CUDA's default mode while another of its threads makes the first
/// collective.
TEST(NcclErrors, ACommunicatorThatMeetsACaptureSaysWhatToDo) {
  GpuWorld world({.ranks = 1});
  FakeCuda& cuda = *world.rank(0).cuda;
  const gpu::StreamHandle captured = cuda.create_stream();
  cuda.begin_capture(captured, gpu::CaptureMode::global);
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  EXPECT_THAT(
      failure_of(world, batch.running),
      AllOf(HasSubstr("operation not permitted when stream is capturing"),
            HasSubstr("before the first capture"), HasSubstr("cudaStreamCaptureModeThreadLocal")));
  batch.running.clear();
  cuda.end_capture(captured);
  cuda.destroy_stream(captured);
}

TEST(NcclLife, AbortEndsACommunicatorThatIsStillBeingMade) {
  std::shared_ptr<FakeNccl> nccl;
  {
    GpuWorld world({.ranks = 1});
    nccl = world.rank(0).nccl;
    nccl->looks_at_init = -1;
    Allreduces batch(world, {8});
    batch.start(allreduce_of(ReduceOp::sum), 0);
    while (nccl->inits() == 0) {
      static_cast<void>(batch.running.front()->step());
      std::this_thread::yield();
    }
    batch.running.clear();
  }
  EXPECT_EQ(nccl->communicators(), 0);
  EXPECT_EQ(nccl->aborts(), 1);
}

/// Everything that a run without faults calls fails once, at its first and at its last time.
void expect_errors(const WorldOptions& options) {
  std::map<std::string, int> calls;
  const auto run = [&](const std::string& call, int after) {
    GpuWorld world(options);
    Allreduces batch(world, {1000, 3, 100000});
    std::string failure;
    try {
      for (int rank = 0; rank < world.size(); ++rank) {
        if (rank == 0 && !call.empty()) world.rank(0).cuda->faults.plan(call, after);
        batch.start_on(rank, allreduce_of(ReduceOp::average), 0);
      }
      failure = failure_of(world, batch.running);
    } catch (const Error& error) {
      failure = error.what();
    }
    batch.running.clear();
    if (call.empty()) calls = world.rank(0).cuda->faults.counts();
    return failure;
  };
  ASSERT_EQ(run("", 0), "");
  ASSERT_GT(calls.size(), 10U);
  for (const auto& [call, count] : calls) {
    if (call == "cudaGetDeviceCount") continue;  // the double's own
    for (const int after : {0, count - 1}) {
      SCOPED_TRACE(call + ", after " + std::to_string(after));
      // Looks come as often as they come: the last may be missed.
      const bool is_look = call == "cudaEventQuery" || call == "ncclCommGetAsyncError";
      if (is_look && after > 0) continue;
      // A rank without NCCL uses another backend, so a failure of these two calls is not an error.
      const std::string failure = run(call, after);
      if (call == "cudaSetDevice") continue;
      if (call == "ncclGetVersion") continue;
      // Another rank may see first that this one has given up.
      EXPECT_THAT(failure, AnyOf(HasSubstr(call + " failed"), HasSubstr("remote process exited")));
    }
  }
}

TEST(NcclErrors, EveryCallThatFailsIsNamedAndNothingIsLeftBehind) {
  expect_errors({.ranks = 1});
  expect_errors({.ranks = 2});
}

TEST(StagedErrors, EveryCallThatFailsIsNamedAndNothingIsLeftBehind) {
  expect_errors({.ranks = 1, .with_nccl = false});
  expect_errors({.ranks = 2, .share_a_gpu = true});
}

TEST(GpuOperationsTest, NcclMayBeDemanded) {
  WorldOptions options{.ranks = 2, .share_a_gpu = true};
  options.settings.gpu_operations = GpuOperations::nccl;
  GpuWorld world(options);
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  EXPECT_THAT(failure_of(world, batch.running),
              HasSubstr("ranks 0-1 cannot use NCCL: ranks 0 and 1 use the same GPU"));
}

TEST(GpuOperationsTest, NcclMayBeForbidden) {
  WorldOptions options{.ranks = 2};
  options.settings.gpu_operations = GpuOperations::staged;
  GpuWorld world(options);
  Allreduces batch(world, {8});
  batch.start(allreduce_of(ReduceOp::sum), 0);
  ASSERT_TRUE(batch.finish());
  batch.expect_sums(1.0);
  EXPECT_EQ(world.rank(0).nccl->inits(), 0);
}

}  // namespace
}  // namespace kolo::internal::backend
