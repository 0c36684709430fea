// SPDX-License-Identifier: Apache-2.0
// The end of communicators with work in progress: all ranks abort together, before memory is
// released, without blocking the driver, and not at all if NCCL does not return.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/gpu/nccl/worker.hpp"
#include "kolo/error.hpp"
#include "nccl_fixture.hpp"

namespace kolo::internal::backend {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

const Descriptor sum_of = allreduce_of(ReduceOp::sum);

/// Steps one rank's executions until it has made so many calls of NCCL.
void step_until_called(Running& running, const FakeNccl& nccl, std::size_t calls) {
  while (nccl.calls().size() < calls)
    for (auto& execution : running) ASSERT_NE(execution->step(), Progress::done);
}

/// Steps executions until the launching thread has them.
void step_until_launching(Running& running) {
  for (auto& execution : running)
    while (execution->waits_for().what != "to begin with it over NCCL")
      ASSERT_NE(execution->step(), Progress::done);
}

/// Kernels of both wait on one stream for a rank that is lost. The double finds an abort that
/// waits for a kernel outside of its group, and memory that is released before its abort ends.
TEST(NcclAbort, CommunicatorsWithKernelsOnOneStreamAreAbortedTogether) {
  GpuWorld world({.ranks = 3});
  const std::vector<int> all{0, 1, 2};
  const std::vector<int> two{0, 1};
  Allreduces first(world, {50, 7});
  first.start(sum_of, 0);
  ASSERT_TRUE(first.finish());
  Allreduces second(world, {50, 7});
  second.start_among(two, two, sum_of, 1);
  ASSERT_TRUE(second.finish());
  Allreduces third(world, {50, 7});
  third.start_on(0, sum_of, 2, all, all);
  third.start_on(0, sum_of, 3, two, two);
  step_until_called(third.running, *world.rank(0).nccl, 4);
  third.running.clear();
  world.rank(0).backend.reset();
  EXPECT_EQ(world.rank(0).nccl->aborts(), 2);
}

TEST(NcclAbort, TheDriverDoesNotWaitForAnAbort) {
  WorldOptions options{.ranks = 1};
  options.settings.nccl_timeout = std::chrono::milliseconds(20);
  GpuWorld world(options);
  FakeNccl& nccl = *world.rank(0).nccl;
  nccl.looks_at_init = -1;
  nccl.holds_aborts = true;
  Allreduces batch(world, {8, 8});
  batch.start(sum_of, 0);
  EXPECT_THAT(failure_of(world, batch.running), HasSubstr("is not done after 0.02 s"));
  EXPECT_THAT(failure_of(world, batch.running), HasSubstr("was aborted"));
  batch.running.clear();
  EXPECT_EQ(nccl.aborts(), 0);
  nccl.holds_aborts = false;
}

/// Everything that releases memory would wait for the GPU, and so for ever.
TEST(NcclAbort, IfItNeverEndsMemoryIsLeaked) {
  std::shared_ptr<FakeNccl> nccl;
  std::shared_ptr<FakeCuda> cuda;
  {
    WorldOptions options{.ranks = 2, .leaves_memory = true};
    options.backend.exit_timeout = std::chrono::milliseconds(10);
    GpuWorld world(options);
    nccl = world.rank(0).nccl;
    cuda = world.rank(0).cuda;
    Allreduces first(world, {50, 7});
    first.start(sum_of, 0);
    ASSERT_TRUE(first.finish());
    Allreduces second(world, {50, 7});
    second.start_on(0, sum_of, 1);
    step_until_called(second.running, *nccl, 2);
    nccl->holds_aborts = true;
    second.running.clear();
  }
  EXPECT_THAT(cuda->complaints(), Contains(EndsWith("pieces of memory are left")));
  nccl->holds_aborts = false;
  // This and the double of NCCL have the GPU, and the thread that is left behind while it uses it.
  while (cuda.use_count() > 2) std::this_thread::yield();
  EXPECT_THAT(cuda->complaints(), Not(Contains(AnyOf(HasSubstr("for ever"), HasSubstr("exist")))));
}

/// NCCL waits in a call, not in a kernel: in that which registers the buffer, or in the first
/// collective, which connects the ranks.
TEST(NcclAbort, ACallThatWaitsForALostRankEnds) {
  for (const Lengths& lengths : {Lengths{50, 7}, Lengths{50}}) {
    GpuWorld world({.ranks = 2});
    for (int rank = 0; rank < 2; ++rank) world.rank(rank).nccl->looks_at_group = -1;
    Allreduces batch(world, lengths);
    batch.start(sum_of, 0);
    while (world.rank(0).nccl->communicators() == 0 || world.rank(1).nccl->communicators() == 0)
      for (auto& execution : batch.running) ASSERT_NE(execution->step(), Progress::done);
    ASSERT_NO_FATAL_FAILURE(step_until_launching(batch.running));
    for (int i = 0; i < 20; ++i)
      for (auto& execution : batch.running) ASSERT_EQ(execution->step(), Progress::waiting);
    batch.running.clear();
    for (int rank = 0; rank < 2; ++rank) {
      world.rank(rank).backend.reset();
      EXPECT_EQ(world.rank(rank).nccl->aborts(), 1);
    }
  }
}

/// The program may replay a graph after a failure, which would access memory that is unmapped.
TEST(NcclAbort, TheBuffersOfGraphsStay) {
  std::shared_ptr<FakeCuda> cuda;
  for (const bool for_graphs : {false, true}) {
    GpuWorld world({.ranks = 1, .leaves_memory = for_graphs});
    cuda = world.rank(0).cuda;
    Descriptor kind = sum_of;
    if (for_graphs) kind.device = gpu_before_graph;
    Allreduces batch(world, {50, 7});
    batch.start(kind, 0);
    ASSERT_TRUE(batch.finish());
    world.rank(0).backend->abandon();
  }
  EXPECT_THAT(cuda->complaints(), Contains("1 pieces of memory are left"));
}

/// The call may use its communicator, its buffer and the GPU for ever.
TEST(NcclAbort, ACallThatNeverEndsIsLeftBehind) {
  std::shared_ptr<FakeNccl> nccl;
  std::shared_ptr<FakeCuda> cuda;
  {
    WorldOptions options{.ranks = 1, .leaves_memory = true};
    options.backend.exit_timeout = std::chrono::milliseconds(10);
    GpuWorld world(options);
    nccl = world.rank(0).nccl;
    cuda = world.rank(0).cuda;
    nccl->holds_calls = true;
    Allreduces batch(world, {50, 7});
    for (std::uint64_t sequence = 0; sequence < 4; ++sequence) batch.start(sum_of, sequence);
    ASSERT_NO_FATAL_FAILURE(step_until_launching(batch.running));
    while (!nccl->is_inside_a_call()) std::this_thread::yield();
    batch.running.clear();
  }
  EXPECT_THAT(cuda->complaints(), Contains(EndsWith("pieces of memory are left")));
  nccl->holds_calls = false;
  while (cuda.use_count() > 2) std::this_thread::yield();
  EXPECT_THAT(cuda->complaints(), Not(Contains(AnyOf(HasSubstr("for ever"), HasSubstr("exist")))));
}

/// NCCL waits for all ranks of a host to end a communicator.
TEST(NcclAbort, AfterTheLossOfARankCommunicatorsAreAborted) {
  GpuWorld world({.ranks = 2});
  Allreduces batch(world, {50, 7});
  batch.start(sum_of, 0);
  ASSERT_TRUE(batch.finish());
  world.rank(0).backend->abandon();
  world.rank(0).backend.reset();  // rank 1 does nothing
  EXPECT_EQ(world.rank(0).nccl->aborts(), 1);
  EXPECT_EQ(world.rank(0).nccl->communicators(), 0);
}

/// A rank is lost before it destroys its part of a communicator: another one waits for that, and
/// its kernels for the lost rank's.
TEST(NcclAbort, TheDestructionOfACommunicatorDoesNotDelayIt) {
  GpuWorld world({.ranks = 3});
  const std::vector<int> all{0, 1, 2};
  Allreduces first(world, {50, 7});
  first.start(sum_of, 0);
  ASSERT_TRUE(first.finish());
  Allreduces second(world, {50, 7});
  second.start_among({0, 1}, all, sum_of, 1);
  ASSERT_TRUE(second.finish());
  Allreduces third(world, {50, 7});
  third.start_on(0, sum_of, 2, all, all, /*joins=*/2);  // ends the communicator of ranks 0 and 1
  FakeNccl& nccl = *world.rank(0).nccl;
  step_until_called(third.running, nccl, 3);
  third.running.clear();
  while (nccl.aborts() == 0) std::this_thread::yield();
}

/// An abort ends the kernels that were launched before, without a result. The session learns of the
/// failure some steps later.
TEST(NcclAbort, ABatchWhoseKernelsItHasEndedIsNotDone) {
  GpuWorld world({.ranks = 2});
  const std::vector<int> all{0, 1};
  Allreduces first(world, {50, 7});
  first.start(sum_of, 0);
  ASSERT_TRUE(first.finish());
  Allreduces second(world, {50, 7});
  second.start_on(0, sum_of, 1);  // rank 1 never comes
  const auto& rank = world.rank(0);
  step_until_called(second.running, *rank.nccl, 2);
  GpuTensors<std::int16_t> tensors(world, 0, {400000},
                                   [](std::size_t, std::int64_t) { return std::int16_t{1}; });
  tensors.set_type(DType::i16);
  Batch third = batch_of(sum_of, 2, 2);  // which NCCL cannot reduce
  tensors.add_to(third);
  rank.cuda->faults.plan("cudaHostAlloc");
  const auto failed = rank.backend->start(std::move(third));
  while (rank.nccl->communicators() > 0) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) rank.cuda->advance();
  EXPECT_THROW(static_cast<void>(second.running.front()->step()), BackendError);
  EXPECT_THROW(static_cast<void>(failed->step()), BackendError);
}

TEST(NcclMemory, AllBatchesInFlightShareOneBuffer) {
  GpuWorld world({.ranks = 2});
  constexpr int batches = 12;
  Allreduces all(world, {60000, 60000});
  for (std::uint64_t sequence = 0; sequence < batches; ++sequence) all.start(sum_of, sequence);
  ASSERT_TRUE(all.finish());
  all.expect_sums(1.0);
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(world.rank(rank).nccl->peak_bytes(), 1U << 20);
}

TEST(NcclMemory, ALargerBatchGetsALargerBuffer) {
  GpuWorld world({.ranks = 2});
  std::uint64_t sequence = 0;
  for (const std::int64_t elements : {100, 200000, 100, 300000}) {
    Allreduces batch(world, {elements, elements});
    batch.start(sum_of, sequence++);
    ASSERT_TRUE(batch.finish());
    batch.expect_sums(1.0);
  }
  EXPECT_EQ(world.rank(0).nccl->peak_bytes(), (1U << 20) + (2U << 20) + (4U << 20));
}

/// The driver naps after a step that leaves it nothing to do.
TEST(NcclLaunch, TheStepThatCallsAlsoUnpacks) {
  GpuWorld world({.ranks = 1});
  world.rank(0).nccl->looks_at_group = 3;
  Allreduces batch(world, {50, 7});
  batch.start(sum_of, 0);
  step_until_called(batch.running, *world.rank(0).nccl, 1);
  // Without another step; the launching thread may still be at it.
  while (world.rank(0).cuda->launches() < 2) std::this_thread::yield();
  ASSERT_TRUE(batch.finish());
}

/// The session has ended, and what later calls would use does not exist any more.
TEST(NcclWorker, AThreadThatIsLeftBehindBeginsNothingMore) {
  std::promise<void> may_return;
  std::atomic<bool> has_begun{false};
  std::function<bool()> is_idle;
  {
    nccl::Worker worker;
    is_idle = worker.idle_within(std::chrono::minutes(1));
    worker.post([returned = may_return.get_future().share()] { returned.wait(); });
    worker.post([&] { has_begun = true; });
    EXPECT_FALSE(worker.stop(std::chrono::nanoseconds(0)));
  }
  may_return.set_value();
  EXPECT_TRUE(is_idle());
  EXPECT_FALSE(has_begun);
}

TEST(NcclLaunch, NoCallInvalidatesACapture) {
  for (const bool with_nccl : {true, false}) {
    GpuWorld world({.ranks = 2, .with_nccl = with_nccl});
    const gpu::StreamHandle captured = world.rank(0).cuda->create_stream();
    world.rank(0).cuda->begin_capture(captured);
    Allreduces batch(world, {50, 7, 200000});
    batch.start(sum_of, 0);
    ASSERT_TRUE(batch.finish());
    batch.expect_sums(1.0);
    world.rank(0).cuda->end_capture(captured);
    world.rank(0).cuda->destroy_stream(captured);
  }
}

}  // namespace
}  // namespace kolo::internal::backend
