// SPDX-License-Identifier: Apache-2.0
// Operations of GPU tensors are final in stream order: calls return when NCCL has its work, and
// streams wait for the results. With doubles whose GPU works late and whose freed memory is
// overwritten as early as the streams allow.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_session.hpp"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

class GpuStreamOrder : public GpuSession {
 protected:
  explicit GpuStreamOrder(const SessionOptions& options = {}) : GpuSession(options) {}

  /// Later work on the user's stream waits until `open_` is set.
  void close_gate() {
    open_ = false;
    cuda_->enqueue(stream(), [this] { return open_.load(); });
  }
  float* ones(std::int64_t elements) {
    return make(elements, [](std::int64_t) { return 1.0; });
  }
  void expect_size(const std::vector<float>& values) {
    for (const float value : values) ASSERT_EQ(value, static_cast<float>(size()));
  }

  std::atomic<bool> open_{true};
};

INSTANTIATE_TEST_SUITE_P(Paths, GpuStreamOrder, testing::Values(GpuPathTested::nccl), name_of_path);

constexpr std::int64_t many = 3000;

TEST_P(GpuStreamOrder, TheHostRunsAheadOfTheGpu) {
  const CudaStreamScope scope(stream());
  close_gate();
  std::vector<float*> tensors;
  for (int step = 0; step < 20; ++step) {
    tensors.push_back(ones(many));
    allreduce(view(tensors.back(), many), {.name = "gradient", .op = ReduceOp::sum});
  }
  Future<void> last = allreduce_async(view(ones(3), 3), {.name = "last"});
  last.wait();
  EXPECT_TRUE(last.ready());
  EXPECT_FALSE(last.finished());
  barrier();  // nothing but the GPU waits for the gate
  open_ = true;
  last.synchronize();
  EXPECT_TRUE(last.finished());
  // The GPU is done with all that came before.
  for (const float* tensor : tensors) expect_size({tensor, tensor + many});
}

TEST_P(GpuStreamOrder, TheCurrentStreamWaitsForTheResults) {
  const CudaStreamScope scope(stream());
  for (int i = 0; i < 30; ++i) {
    float* const tensor = ones(many);
    Future<void> future = allreduce_async(view(tensor, many), {.op = ReduceOp::sum});
    future.get();
    expect_size(read(tensor, many));
  }
}

TEST_P(GpuStreamOrder, AnotherStreamThatIsCurrentInGetWaits) {
  cuda_->use_device(rank());
  const backend::gpu::StreamHandle other = cuda_->create_stream();
  for (int i = 0; i < 10; ++i) {
    float* const tensor = ones(many);
    Future<void> future;
    {
      const CudaStreamScope scope(stream());
      future = allreduce_async(view(tensor, many), {.op = ReduceOp::sum});
    }
    const CudaStreamScope scope(other);
    future.wait();
    cuda_->synchronize(other);
    expect_size({tensor, tensor + many});
  }
  cuda_->destroy_stream(other);
}

TEST_P(GpuStreamOrder, SynchronizeWaitsForEverything) {
  const CudaStreamScope scope(stream());
  std::vector<float*> tensors;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(ones(many));
    allreduce(view(tensors.back(), many), {.name = std::to_string(i), .op = ReduceOp::sum});
  }
  synchronize();
  for (const float* tensor : tensors) expect_size({tensor, tensor + many});
}

/// The memory is overwritten when the user's stream has come there.
TEST_P(GpuStreamOrder, MemoryMayBeFreedInStreamOrder) {
  const CudaStreamScope scope(stream());
  const std::size_t bytes = many * sizeof(float);
  for (int i = 0; i < 30; ++i) {
    auto* const input = reinterpret_cast<float*>(cuda_->make_memory(bytes));
    cuda_->enqueue(stream(), [input] {
      std::fill(input, input + many, 1.0F);
      return true;
    });
    float* const output = ones(many);
    allreduce(ConstTensorView(view(input, many)), view(output, many), {.op = ReduceOp::sum});
    cuda_->free_memory(reinterpret_cast<std::byte*>(input), stream());
    expect_size(read(output, many));
  }
}

TEST_P(GpuStreamOrder, AFutureThatIsDroppedWaitsForTheGpu) {
  const CudaStreamScope scope(stream());
  const std::size_t bytes = many * sizeof(float);
  for (int i = 0; i < 10; ++i) {
    auto* const input = reinterpret_cast<float*>(cuda_->make_memory(bytes));
    cuda_->enqueue(stream(), [input] {
      std::fill(input, input + many, 1.0F);
      return true;
    });
    float* const output = ones(many);
    {
      const Future<void> dropped = allreduce_async(ConstTensorView(view(input, many)),
                                                   view(output, many), {.op = ReduceOp::sum});
    }
    cuda_->free_memory(reinterpret_cast<std::byte*>(input), stream());
    expect_size({output, output + many});
  }
}

TEST_P(GpuStreamOrder, AnErrorOfTheGpuComesWithTheNextCall) {
  const CudaStreamScope scope(stream());
  close_gate();
  float* const tensor = ones(many);
  Future<void> future = allreduce_async(view(tensor, many), {.name = "late"});
  future.wait();
  std::thread opener([this] {  // an abort waits for the work before NCCL's
    while (nccl_->aborts() == 0) std::this_thread::yield();
    open_ = true;
  });
  std::string message;
  try {
    // All ranks have launched it, also those that hear of the failure before the barrier's end.
    barrier();
    if (rank() == 0) nccl_->fail_later("a call of NCCL under way failed: the network is down (6)");
    future.synchronize();
    ADD_FAILURE() << "it did not fail";
  } catch (const Error& error) {
    message = error.what();
  }
  if (rank() == 0) {
    EXPECT_THAT(message, HasSubstr("allreduce \"late\""));
    EXPECT_THAT(message, HasSubstr("the network is down"));
  }
  EXPECT_THROW(future.wait(), Error);
  EXPECT_THROW(barrier(), Error);
  opener.join();
}

class GpuInFlight : public GpuStreamOrder {
 protected:
  GpuInFlight() : GpuStreamOrder({.gpu_in_flight = 2 * many * 4}) {}
};
INSTANTIATE_TEST_SUITE_P(Paths, GpuInFlight, testing::Values(GpuPathTested::nccl), name_of_path);

/// Two batches fit into the limit, and the third exceeds it.
TEST_P(GpuInFlight, AThreadThatSubmitsTooMuchWaits) {
  const CudaStreamScope scope(stream());
  std::vector<float*> tensors;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(ones(many));
    allreduce(view(tensors.back(), many), {.name = std::to_string(i), .op = ReduceOp::sum});
    if (i >= 3) {
      const float* const old = tensors[static_cast<std::size_t>(i - 3)];
      expect_size({old, old + many});
    }
  }
  synchronize();
}

class GpuBlockingWait : public GpuStreamOrder {
 protected:
  GpuBlockingWait() : GpuStreamOrder({.gpu_blocking_wait = true}) {}
};
INSTANTIATE_TEST_SUITE_P(Paths, GpuBlockingWait, testing::Values(GpuPathTested::nccl),
                         name_of_path);

TEST_P(GpuBlockingWait, TheHostWaitsForTheGpu) {
  const CudaStreamScope scope(stream());
  for (int i = 0; i < 10; ++i) {
    float* const tensor = ones(many);
    allreduce(view(tensor, many), {.op = ReduceOp::sum});
    expect_size({tensor, tensor + many});
  }
}

}  // namespace
}  // namespace kolo::internal
