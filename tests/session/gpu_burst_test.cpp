// SPDX-License-Identifier: Apache-2.0
// Bursts of operations on GPU tensors: one mark, one batch, and no operation is forgotten.
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gpu_session.hpp"
#include "kolo/detail/submission_burst.hpp"

namespace kolo::internal {
namespace {

using detail::SubmissionBurst;

constexpr std::int64_t tensor_elements = 200;

class GpuBurst : public GpuSession {
 protected:
  /// Submits allreduces of tensors that the user's stream fills with ones later.
  std::vector<Future<void>> submit(int count, const std::string& name = "t") {
    std::vector<Future<void>> futures;
    for (int i = 0; i < count; ++i) {
      if (tensors_.size() <= static_cast<std::size_t>(i))
        tensors_.push_back(static_cast<float*>(allocate(tensor_elements)));
      futures.push_back(
          allreduce_async(view(tensors_[static_cast<std::size_t>(i)], tensor_elements),
                          {.name = name + std::to_string(i), .op = ReduceOp::sum}));
    }
    return futures;
  }
  void fill(int count) {
    while (tensors_.size() < static_cast<std::size_t>(count))
      tensors_.push_back(static_cast<float*>(allocate(tensor_elements)));
    cuda_->enqueue(stream(), [tensors = tensors_] {
      for (float* const tensor : tensors) std::fill(tensor, tensor + tensor_elements, 1.0F);
      return true;
    });
  }
  void expect_sums() {
    for (const float* const tensor : tensors_)
      for (const float value : read(tensor, tensor_elements))
        ASSERT_EQ(value, static_cast<float>(size()));
  }
  int marks() { return cuda_->faults.made_by_this_thread("cudaEventRecord"); }

 private:
  std::vector<float*> tensors_{};
};

INSTANTIATE_TEST_SUITE_P(Paths, GpuBurst, gpu_paths, name_of_path);

TEST_P(GpuBurst, TheOperationsOfABurstShareAMarkAndABatch) {
  const CudaStreamScope scope(stream());
  constexpr int count = 40;
  for (int step = 0; step < 20; ++step) {
    fill(count);
    barrier();
    const int marks_before = marks();
    const int events_before = cuda_->faults.made_by_this_thread("cudaEventCreateWithFlags");
    const std::uint64_t batches_before = statistics().batches;
    std::vector<Future<void>> futures;
    {
      const SubmissionBurst burst;
      futures = submit(count);
    }
    const int marks_made = marks() - marks_before;
    const int events_made =
        cuda_->faults.made_by_this_thread("cudaEventCreateWithFlags") - events_before;
    for (Future<void>& future : futures) future.get();
    EXPECT_EQ(marks_made, 1);
    EXPECT_LE(events_made, step == 0 ? 1 : 0) << "an event can be recorded again";
    EXPECT_EQ(statistics().batches - batches_before, 1);
    expect_sums();
  }
}

TEST_P(GpuBurst, AWaitWithinABurstShowsWhatIsSubmitted) {
  const CudaStreamScope scope(stream());
  fill(5);
  const SubmissionBurst burst;
  for (Future<void>& future : submit(5)) future.get();
  expect_sums();
  fill(5);
  for (Future<void>& future : submit(5)) EXPECT_TRUE(future.wait_for(std::chrono::minutes(5)));
  expect_sums();
}

TEST_P(GpuBurst, ASynchronousCallWithinABurstBringsTheRestAlong) {
  const CudaStreamScope scope(stream());
  fill(5);
  const SubmissionBurst burst;
  std::vector<Future<void>> futures = submit(5);
  double one = 1.0;
  allreduce(one, {.name = "synchronous", .op = ReduceOp::sum});
  EXPECT_EQ(one, size());
  for (Future<void>& future : futures) future.get();
  expect_sums();
}

TEST_P(GpuBurst, AnInnerBurstIsPartOfTheOuterOne) {
  const CudaStreamScope scope(stream());
  fill(4);
  const int before = marks();
  std::vector<Future<void>> futures;
  {
    const SubmissionBurst outer;
    {
      const SubmissionBurst inner;
      futures = submit(2, "inner");
    }
    for (Future<void>& future : submit(4, "outer")) futures.push_back(std::move(future));
    EXPECT_EQ(marks() - before, 1);
  }
  for (Future<void>& future : futures) future.get();
}

TEST_P(GpuBurst, TensorsOfAnotherStreamHaveAnotherMark) {
  const backend::gpu::StreamHandle computes = stream();
  const backend::gpu::StreamHandle other = cuda_->create_stream();
  fill(3);
  int before = marks();
  std::vector<Future<void>> futures;
  {
    const CudaStreamScope scope(other);
    // The stream that has computed the tensors counts, not the current one.
    const SubmissionBurst burst(kolo::detail::StreamInUse{computes, false});
    futures = submit(3);
  }
  EXPECT_EQ(marks() - before, 1);
  const CudaStreamScope scope(computes);
  for (Future<void>& future : futures) future.get();
  expect_sums();
  {
    fill(3);
    before = marks();
    const SubmissionBurst burst;
    double* const none = nullptr;
    const CudaStreamScope outside(other);
    futures.clear();
    futures.push_back(allreduce_async(TensorView(none, Shape{0}, device()),
                                      {.name = "empty", .op = ReduceOp::sum}));
    const CudaStreamScope inside(computes);
    for (Future<void>& future : submit(3)) futures.push_back(std::move(future));
    EXPECT_EQ(marks() - before, 2) << "one for each stream";
  }
  for (Future<void>& future : futures) future.get();
  expect_sums();
  cuda_->destroy_stream(other);
}

/// A thread that is in a burst holds up no other.
TEST_P(GpuBurst, OtherThreadsGoOn) {
  const CudaStreamScope scope(stream());
  fill(3);
  const SubmissionBurst burst;
  std::vector<Future<void>> futures = submit(3);
  std::thread([] {
    double one = 1.0;
    allreduce(one, {.name = "other thread", .op = ReduceOp::sum});
    EXPECT_EQ(one, size());
  }).join();
  for (Future<void>& future : futures) future.get();
  expect_sums();
}

}  // namespace
}  // namespace kolo::internal
