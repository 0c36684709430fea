// SPDX-License-Identifier: Apache-2.0
// GPU tensors in a session, with doubles of CUDA and NCCL, over NCCL and through the host.
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "gpu_session.hpp"
#include "session/api/cuda_device.hpp"

namespace kolo::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Paths, GpuSession, gpu_paths, name_of_path);

TEST_P(GpuSession, AllreduceWaitsForTheSubmittersStream) {
  const std::int64_t elements = 5000;
  float* const tensor = make(elements, [](std::int64_t k) { return rank() + k % 5; });
  const CudaStreamScope scope(stream());
  allreduce(view(tensor, elements), {.name = "x", .op = ReduceOp::sum});
  cuda_->synchronize(stream());
  for (std::int64_t k = 0; k < elements; ++k)
    ASSERT_EQ(tensor[k], sum_of_ranks() + static_cast<double>(size() * (k % 5)));
}

TEST_P(GpuSession, ManyAtOnceAndAGroup) {
  std::vector<float*> tensors;
  std::vector<Future<void>> futures;
  const CudaStreamScope scope(stream());
  for (int i = 0; i < 30; ++i) {
    tensors.push_back(make(100, [i](std::int64_t k) { return rank() + i + k; }));
    futures.push_back(allreduce_async(view(tensors.back(), 100),
                                      {.name = std::to_string(i) + "t", .op = ReduceOp::average}));
  }
  float* const one = make(3, [](std::int64_t) { return 1.0; });
  float* const two = make(70, [](std::int64_t) { return rank(); });
  grouped_allreduce({view(one, 3), view(two, 70)}, {.op = ReduceOp::sum});
  cuda_->synchronize(stream());
  EXPECT_EQ(one[2], size());
  EXPECT_EQ(two[69], sum_of_ranks());
  for (std::size_t i = 0; i < futures.size(); ++i) {
    futures[i].wait();
    cuda_->synchronize(stream());
    for (std::int64_t k = 0; k < 100; ++k)
      ASSERT_FLOAT_EQ(tensors[i][k],
                      static_cast<float>(sum_of_ranks() / size() + static_cast<double>(i) +
                                         static_cast<double>(k)));
  }
}

TEST_P(GpuSession, OneMayOutlastManyOthers) {
  constexpr std::int64_t elements = 4 << 20;  // staged in several chunks
  float* const large = make(elements, [](std::int64_t k) { return k % 7; });
  const CudaStreamScope scope(stream());
  Future<void> done = allreduce_async(view(large, elements), {.op = ReduceOp::sum});
  for (std::int64_t i = 0; i < 60; ++i) {
    std::vector<std::int64_t> values(i % 2 == 0 ? 1 : 10'000, i);
    allreduce(values, {.op = ReduceOp::sum});
    ASSERT_EQ(std::count(values.begin(), values.end(), i * size()), std::ssize(values));
    float* const small = make(100, [=](std::int64_t) { return static_cast<float>(i); });
    allreduce(view(small, 100), {.op = ReduceOp::sum});
    const std::vector<float> sums = read(small, 100);
    ASSERT_EQ(std::count(sums.begin(), sums.end(), static_cast<float>(i * size())), 100) << i;
  }
  done.wait();
  cuda_->synchronize(stream());
  for (std::int64_t k = 0; k < elements; ++k)
    ASSERT_EQ(large[k], static_cast<float>(k % 7 * size())) << k;
}

TEST_P(GpuSession, RowsTravelToo) {
  const CudaStreamScope scope(stream());
  float* const own = make(rank() + 1, [](std::int64_t) { return rank(); });
  float* gathered = nullptr;
  const auto counts = allgather(
      ConstTensorView(view(own, rank() + 1)), [&](std::span<const std::int64_t> rows) -> void* {
        gathered = static_cast<float*>(
            allocate(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})));
        return gathered;
      });
  cuda_->synchronize(stream());
  const float* next = gathered;
  for (int from = 0; from < size(); ++from) {
    EXPECT_EQ(counts[static_cast<std::size_t>(from)], from + 1);
    for (int i = 0; i <= from; ++i) EXPECT_EQ(*next++, from);
  }
  float* const tensor = make(300, [](std::int64_t k) { return 1000 * rank() + k; });
  broadcast(view(tensor, 300), size() - 1);
  cuda_->synchronize(stream());
  for (std::int64_t k = 0; k < 300; ++k)
    ASSERT_EQ(tensor[k], static_cast<float>(1000 * (size() - 1) + k));
}

TEST_P(GpuSession, CpuAndGpuTensorsUnderOneNameAreAMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const CudaStreamScope scope(stream());
  float* const on_gpu = make(4, [](std::int64_t) { return 1.0; });
  std::vector<float> on_cpu(4, 1.0F);
  try {
    if (rank() == 0) {
      allreduce(view(on_gpu, 4), {.name = "mixed"});
    } else {
      allreduce(on_cpu, {.name = "mixed"});
    }
    ADD_FAILURE() << "it was not refused";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mixed"), HasSubstr("device"), HasSubstr("cuda"),
                                    HasSubstr("cpu")));
  }
  allreduce(view(on_gpu, 4), {.name = "after", .op = ReduceOp::sum});
  EXPECT_EQ(read(on_gpu, 1).front(), size()) << "the session goes on";
}

TEST_P(GpuSession, ADeviceThatIsNotThereIsRefusedAtTheCall) {
  float* const tensor = make(4, [](std::int64_t) { return 1.0; });
  const TensorView elsewhere(tensor, Shape{4}, Device{DeviceType::cuda, 9});
  try {
    allreduce(elsewhere, {.name = "lost"});
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"lost\" on rank " + std::to_string(rank())),
                                    HasSubstr("there is no cuda:9 in this process")));
  }
  const CudaStreamScope scope(stream());
  allreduce(view(tensor, 4), {.name = "lost", .op = ReduceOp::sum});
  EXPECT_EQ(read(tensor, 4).back(), size());
}

TEST_P(GpuSession, ACallThatFailsAtTheSubmissionIsNamed) {
  float* const tensor = make(4, [](std::int64_t) { return 1.0; });
  const CudaStreamScope scope(stream());
  cuda_->faults.plan("cudaEventRecord");
  try {
    allreduce(view(tensor, 4), {.name = "x"});
    ADD_FAILURE() << "it did not fail";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("allreduce \"x\" on rank "), HasSubstr("cudaEventRecord failed")));
    EXPECT_EQ(error.tensor(), "x");
  }
  allreduce(view(tensor, 4), {.name = "x", .op = ReduceOp::sum});
  EXPECT_EQ(read(tensor, 1).front(), size());
}

/// Memory from a device that the program created works with the session, which has another handle
/// of the device.
TEST_P(GpuSession, MemoryOfADeviceOfTheProgramsOwn) {
  const CudaDevice gpu(std::make_shared<CudaDevice::State>(cuda_, rank()));
  constexpr std::size_t elements = 70000;
  std::vector<float> numbers(elements);
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(rank()));
  const auto memory = gpu.allocate(elements * sizeof(float));
  gpu.copy_to_device(memory.get(), numbers.data(), elements * sizeof(float));
  allreduce(TensorView(reinterpret_cast<float*>(memory.get()), Shape{elements},
                       Device{DeviceType::cuda, gpu.index()}),
            {.name = "x", .op = ReduceOp::sum});
  gpu.copy_to_host(numbers.data(), memory.get(), elements * sizeof(float));
  for (std::size_t i = 0; i < elements; ++i)
    ASSERT_EQ(numbers[i], sum_of_ranks() + static_cast<double>(size()) * static_cast<double>(i));
}

TEST(WithoutGpu, ThereIsNoDeviceOfTheProgramsOwn) {
  EXPECT_THROW(CudaDevice{CudaDevice::count()}, InvalidArgument);
}

/// With what this machine has, which in CI is no GPU.
TEST(WithoutGpu, AGpuTensorIsRefusedAndTheSessionGoesOn) {
  const Session session({.flight_recorder_dir = "off"});
  if (!build_info().cuda.empty()) {
    EXPECT_NE(backend::gpu::find_runtime(), nullptr);
  }
  std::vector<float> tensor(4, 1.0F);
  try {
    allreduce(TensorView(tensor.data(), Shape{4}, Device{DeviceType::cuda, 99}), {.name = "x"});
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the tensor is on cuda:99"));
  }
  allreduce(tensor, {.name = "x", .op = ReduceOp::sum});
  EXPECT_EQ(tensor.front(), size());
}

}  // namespace
}  // namespace kolo::internal
