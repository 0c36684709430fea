// SPDX-License-Identifier: Apache-2.0
// Collectives of GPU tensors in kolo::torch.
#include <vector>

#include "gpu_tensors.hpp"

namespace kolo::internal {
namespace {

INSTANTIATE_TEST_SUITE_P(Paths, TorchGpuTest, testing::Bool());

TEST_P(TorchGpuTest, AllreducesWaitForLibTorchsStream) {
  const auto own = [](std::int64_t k) { return rank() + static_cast<double>(k % 7); };
  const auto sum = [](std::int64_t k) {
    return sum_of_ranks() + size() * static_cast<double>(k % 7);
  };
  Tensor tensor = filled({30, 20}, own);
  allreduce_(tensor, {.name = "in place", .op = ReduceOp::sum});
  expect_numbers(tensor, sum);
  expect_numbers(allreduce(filled({900}, own), {.name = "out of place", .op = ReduceOp::sum}), sum);
  expect_numbers(allreduce_async_(filled({900}, own), {.name = "async", .op = ReduceOp::sum}).get(),
                 sum);
  std::vector<Tensor> group{filled({5}, own), filled({11, 2}, own)};
  grouped_allreduce_(group, {.name = "group", .op = ReduceOp::sum});
  for (const Tensor& member : group) expect_numbers(member, sum);
}

TEST_P(TorchGpuTest, BroadcastsAndReducescatters) {
  const auto own = [](std::int64_t k) { return 100 * rank() + static_cast<double>(k); };
  Tensor tensor = filled({70}, own);
  broadcast_(tensor, size() - 1, {.name = "b"});
  expect_numbers(tensor,
                 [](std::int64_t k) { return 100 * (size() - 1) + static_cast<double>(k); });
  const Tensor rows =
      reducescatter(filled({2 * size(), 3}, own), {.name = "r", .op = ReduceOp::sum});
  expect_numbers(rows, [](std::int64_t k) {
    return 100 * sum_of_ranks() + size() * static_cast<double>(6 * rank() + k);
  });
}

TEST_P(TorchGpuTest, RowsArriveInMemoryThatBothStreamsKnow) {
  const auto own = [](std::int64_t) { return rank(); };
  const Tensor all = allgather(filled({rank() + 1, 2}, own), {.name = "g"});
  ASSERT_EQ(all.size(0), size() * (size() + 1) / 2);
  cuda->synchronize(user_stream);
  std::int64_t row = 0;
  for (int from = 0; from < size(); ++from)
    for (int i = 0; i <= from; ++i, ++row) EXPECT_EQ(numbers_of(all)[2 * row + 1], from);
  const Received received = alltoall(filled({2 * size(), 1}, own), {.name = "a"});
  expect_numbers(received.output, [](std::int64_t k) { return static_cast<double>(k / 2); });
  EXPECT_EQ(allocated_between_streams, 2);
}

/// No stream waits for the results yet.
void wait_for_launch(const Future<Tensor>& future) {
  const kolo::detail::FutureBase* const pending = &future;
  kolo::detail::FutureBase::wait_for_any({&pending, 1});
}

/// The future has the only reference to the tensor that is sent, until the streams wait for the
/// GPU.
TEST_P(TorchGpuTest, MemoryOfSentTensorsIsReusedOnlyAfterTheOperation) {
  for (int i = 0; i < 10; ++i) {
    Future<Tensor> future =
        allgather_async(filled({500}, [](std::int64_t) { return rank(); }), {.name = "g"});
    wait_for_launch(future);
    const Tensor other = filled({500}, [](std::int64_t) { return -1.0; });
    const Tensor all = future.get();
    expect_numbers(all, [](std::int64_t k) { return static_cast<double>(k / 500); });
  }
}

/// LibTorch hands memory out again in the order of the stream on which it was allocated.
TEST_P(TorchGpuTest, TheStreamOfTheSubmissionWaitsToo) {
  const backend::gpu::StreamHandle first = user_stream;
  const backend::gpu::StreamHandle second = cuda->create_stream();
  for (int i = 0; i < 10; ++i) {
    Tensor sent = filled({500}, [](std::int64_t) { return rank(); });
    Future<Tensor> future = allgather_async(sent, {.name = "g"});
    wait_for_launch(future);
    user_stream = second;
    const Tensor all = future.get();
    user_stream = first;
    sent.reset();
    user_stream = second;
    expect_numbers(all, [](std::int64_t k) { return static_cast<double>(k / 500); });
    cuda->synchronize(second);
    user_stream = first;
  }
  cuda->destroy_stream(second);
}

}  // namespace
}  // namespace kolo::internal
