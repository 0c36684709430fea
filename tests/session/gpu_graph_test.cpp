// SPDX-License-Identifier: Apache-2.0
// Operations that are captured into CUDA graphs. The double replays what was captured in any order
// that streams and events allow.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu_session.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

using backend::FakeGraph;
using backend::gpu::CaptureMode;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t length = 3000;

class GpuGraphs : public GpuSession {
 protected:
  explicit GpuGraphs(const SessionOptions& options = {}) : GpuSession(options) {}

  float* memory(std::int64_t elements) {
    return make(elements, [](std::int64_t) { return 0.0; });
  }
  void fill(float* tensor, std::int64_t elements, float value) {
    cuda_->enqueue(stream(), [=] {
      std::fill(tensor, tensor + elements, value);
      return true;
    });
  }
  void expect_all(const float* tensor, std::int64_t elements, double value) {
    for (const float element : read(tensor, elements))
      ASSERT_EQ(element, static_cast<float>(value));
  }
  std::shared_ptr<const FakeGraph> capture(const std::function<void()>& work,
                                           CaptureMode mode = CaptureMode::thread_local_only) {
    cuda_->begin_capture(stream(), mode);
    work();
    return cuda_->end_capture(stream());
  }
  std::string refusal_of(const std::function<void()>& work) {
    std::string why;
    static_cast<void>(capture([&] {
      try {
        work();
        ADD_FAILURE() << "it was not refused";
      } catch (const InvalidArgument& error) {
        why = error.what();
      }
    }));
    return why;
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, GpuGraphs, testing::Values(GpuPathTested::nccl), name_of_path);

/// The step doubles its tensors first, so that every part of a replay shows.
class GpuStep : public GpuGraphs {
 protected:
  void run() {
    const std::vector<std::pair<float*, std::int64_t>> inputs{
        {first_, length}, {second_, 7}, {root_, length}, {whole_, rows_}};
    for (const auto& [tensor, elements] : inputs) {
      cuda_->enqueue(stream(), [tensor = tensor, elements = elements] {
        for (std::int64_t k = 0; k < elements; ++k) tensor[k] *= 2;
        return true;
      });
    }
    Future<void> first = allreduce_async(view(first_, length), {.name = "first"});
    Future<void> second =
        allreduce_async(view(second_, 7), {.name = "second", .op = ReduceOp::sum});
    broadcast(view(root_, length), 0, {.name = "root"});
    reducescatter(view(whole_, rows_), view(own_, 2), {.name = "rows", .op = ReduceOp::sum});
    second.get();
    first.get();
  }
  /// The inputs, of which each rank has its own.
  void fill_all(int round) {
    const auto value = static_cast<float>(rank() + round);
    fill(first_, length, value);
    fill(second_, 7, value);
    fill(root_, length, value);
    fill(whole_, rows_, value);
  }
  void expect_results(int round) {
    const double sum = 2 * (sum_of_ranks() + round * size());
    expect_all(first_, length, sum / size());
    expect_all(second_, 7, sum);
    expect_all(root_, length, 2 * round);
    expect_all(own_, 2, sum);
  }
  void warm_up() {
    const GraphWarmUp warm_up;
    fill_all(1);
    run();
    expect_results(1);
  }

  std::int64_t rows_ = 2 * size();
  float* first_ = memory(length);
  float* second_ = memory(7);
  float* root_ = memory(length);
  float* whole_ = memory(rows_);
  float* own_ = memory(2);
};

INSTANTIATE_TEST_SUITE_P(Paths, GpuStep, testing::Values(GpuPathTested::nccl), name_of_path);

/// In CUDA's default mode, too, which forbids NCCL's own threads to make anything.
TEST_P(GpuStep, IsReplayed) {
  const CudaStreamScope scope(stream());
  warm_up();
  for (const CaptureMode mode : {CaptureMode::thread_local_only, CaptureMode::global}) {
    const auto graph = capture([&] { run(); }, mode);
    EXPECT_GT(graph->size(), 4U);
    for (int round = 2; round < 8; ++round) {
      fill_all(round);
      cuda_->launch_graph(*graph, stream());
      expect_results(round);
      // Others meanwhile, also of a name that was captured.
      fill(first_, length, 1);
      allreduce(view(first_, length), {.name = round % 2 == 0 ? "first" : "other"});
      expect_all(first_, length, 1);
    }
  }
  EXPECT_EQ(nccl_->inits(), 1);
  EXPECT_EQ(nccl_->shrinks(), 0);
}

TEST_P(GpuStep, CapturesAreManyAndReplayedInAnyTurn) {
  const CudaStreamScope scope(stream());
  warm_up();
  std::vector<std::shared_ptr<const FakeGraph>> graphs;
  for (int i = 0; i < 3; ++i) {
    graphs.push_back(capture([&] { run(); }));
    fill_all(i);
    run();  // not captured
    expect_results(i);
  }
  for (int round = 0; round < 9; ++round) {
    fill_all(round);
    cuda_->launch_graph(*graphs.at(static_cast<std::size_t>(round * round % 3)), stream());
    expect_results(round);
  }
}

TEST_P(GpuStep, CapturedWorkIsDoneForTheHostAtOnce) {
  const CudaStreamScope scope(stream());
  warm_up();
  static_cast<void>(capture([&] {
    Future<void> future = allreduce_async(view(first_, length), {.name = "first"});
    future.wait();
    future.synchronize();
    kolo::synchronize();
    EXPECT_TRUE(future.finished());
  }));
}

TEST_P(GpuGraphs, WhatNoWarmUpHasPreparedIsRefused) {
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  allreduce(view(tensor, length), {.name = "known"});
  for (const char* const name : {"known", "new", ""})
    EXPECT_THAT(refusal_of([&] { allreduce(view(tensor, length), {.name = name}); }),
                AllOf(HasSubstr("GraphWarmUp"), HasSubstr("on rank " + std::to_string(rank()))));
  {
    const GraphWarmUp warm_up;
    allreduce(view(tensor, length), {.name = "known"});
  }
  const auto graph = capture([&] { allreduce(view(tensor, length), {.name = "known"}); });
  fill(tensor, length, 3);
  cuda_->launch_graph(*graph, stream());
  expect_all(tensor, length, 3);
}

/// As in an elastic job, whose ranks are others then.
TEST_P(GpuGraphs, ANewSessionNeedsAWarmUpOfItsOwn) {
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  const auto reduce = [&] { allreduce(view(tensor, length), {.name = "one"}); };
  for (int session = 0; session < 3; ++session) {
    if (session > 0) {
      session::end_session(true, "");
      start({.flight_recorder_dir = "off"});
    }
    EXPECT_THAT(refusal_of(reduce), HasSubstr("GraphWarmUp"));
    {
      const GraphWarmUp warm_up;
      reduce();
    }
    const auto graph = capture(reduce);
    fill(tensor, length, static_cast<float>(session));
    cuda_->launch_graph(*graph, stream());
    expect_all(tensor, length, session);
  }
}

/// Alone in its batch, a tensor needs no buffer. In a capture the batch may have others.
TEST_P(GpuGraphs, ACaptureMayFuseWhatTheWarmUpDidNot) {
  const CudaStreamScope scope(stream());
  float* const first = memory(length);
  float* const second = memory(length);
  {
    const GraphWarmUp warm_up;
    allreduce(view(first, length), {.name = "first"});
    allreduce(view(second, length), {.name = "second"});
  }
  const std::size_t bytes = nccl_->peak_bytes();
  const auto graph = capture(
      [&] {
        Future<void> one = allreduce_async(view(first, length), {.name = "first"});
        Future<void> two = allreduce_async(view(second, length), {.name = "second"});
        one.get();
        two.get();
      },
      CaptureMode::global);
  EXPECT_EQ(nccl_->peak_bytes(), bytes);
  fill(first, length, 2);
  fill(second, length, 3);
  cuda_->launch_graph(*graph, stream());
  expect_all(first, length, 2);
  expect_all(second, length, 3);
}

TEST_P(GpuGraphs, OtherTensorsOfTheNameAreRefused) {
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  {
    const GraphWarmUp warm_up;
    allreduce(view(tensor, 7), {.name = "one"});
  }
  EXPECT_THAT(refusal_of([&] { allreduce(view(tensor, length), {.name = "one"}); }),
              HasSubstr("the same name and tensors"));
}

TEST_P(GpuGraphs, WhatAllocatesIsRefused) {
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  const auto gather = [&] {
    static_cast<void>(allgather(view(tensor, length),
                                [this](std::span<const std::int64_t> rows) {
                                  return allocate(
                                      std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
                                },
                                {.name = "gathered"}));
  };
  {
    const GraphWarmUp warm_up;
    gather();
  }
  EXPECT_THAT(refusal_of(gather), HasSubstr("allgathers cannot"));
}

TEST_P(GpuGraphs, ARankThatDoesNotCaptureIsNamed) {
  if (size() == 1) GTEST_SKIP();
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  {
    const GraphWarmUp warm_up;
    allreduce(view(tensor, length), {.name = "one"});
  }
  const auto reduce = [&] {
    try {
      allreduce(view(tensor, length), {.name = "one"});
      ADD_FAILURE() << "it did not fail";
    } catch (const Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("cuda, captured into a graph"));
    }
  };
  if (rank() == 0) {
    static_cast<void>(capture(reduce));
  } else {
    reduce();
  }
}

/// A graph would wait for the ranks that have joined.
TEST_P(GpuGraphs, JoinedRanksCannotTakePart) {
  leaves_memory_ = true;  // the buffer of graphs, after an abort
  if (size() == 1) GTEST_SKIP();
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  {
    const GraphWarmUp warm_up;
    allreduce(view(tensor, length), {.name = "one"});
  }
  if (rank() > 0) {
    try {
      static_cast<void>(capture([&] { allreduce(view(tensor, length), {.name = "one"}); }));
      ADD_FAILURE() << "it did not fail";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("have joined"));
      static_cast<void>(cuda_->end_capture(stream()));
    }
  } else {
    EXPECT_ANY_THROW(join());
  }
}

class GpuGraphsThroughTheHost : public GpuGraphs {};
INSTANTIATE_TEST_SUITE_P(Paths, GpuGraphsThroughTheHost, testing::Values(GpuPathTested::staged),
                         name_of_path);

TEST_P(GpuGraphsThroughTheHost, NothingCanBeCaptured) {
  const CudaStreamScope scope(stream());
  float* const tensor = memory(length);
  {
    const GraphWarmUp warm_up;
    fill(tensor, length, 5);
    allreduce(view(tensor, length), {.name = "one"});
    expect_all(tensor, length, 5);
  }
  EXPECT_THAT(refusal_of([&] { allreduce(view(tensor, length), {.name = "one"}); }),
              HasSubstr("NCCL 2.27 or later must execute"));
}

}  // namespace
}  // namespace kolo::internal
