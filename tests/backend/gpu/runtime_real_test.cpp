// SPDX-License-Identifier: Apache-2.0
// The real interface to CUDA over calls with results set by the test. Errors of the program must
// remain visible to the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

// A build with CUDA has the real ones.
#define launch_transfer launch_transfer_of_test
#define find_transfer_kernel find_transfer_kernel_of_test
#define built_version built_version_of_test
#define find_runtime find_runtime_of_test
#include "backend/gpu/runtime/runtime_real.cpp"

namespace kolo::internal::backend::gpu {

std::vector<std::int64_t> launched_counts{};  // the segments of each launch

cudaError_t launch_transfer_of_test(const TransferTable& table, cudaStream_t /*stream*/) {
  launched_counts.push_back(table.count);
  return cudaSuccess;
}
cudaError_t find_transfer_kernel_of_test() { return cudaSuccess; }

namespace {

using testing::HasSubstr;

class RealRuntimeTest : public testing::Test {
 protected:
  ~RealRuntimeTest() override {
    cuda_on_host = {};
    cuda_calls_on_host = {};
  }
  template <typename Call>
  static std::string failure_of(Call call) {
    try {
      call();
    } catch (const BackendError& error) {
      return error.what();
    }
    return "";
  }

  RealRuntime runtime_{};
};

TEST_F(RealRuntimeTest, HiddenGpusAreNoneAndNoError) {
  EXPECT_EQ(runtime_.device_count(), 1);
  cuda_on_host.device_count = cudaErrorNoDevice;
  EXPECT_EQ(runtime_.device_count(), 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RealRuntimeTest, SegmentsBeyondATableTakeAnotherLaunch) {
  constexpr std::int64_t most = TransferTable::max_count;
  launched_counts.clear();
  const std::vector<Segment> segments(2 * TransferTable::max_count + 1, Segment{.elements = 1});
  runtime_.launch(segments, nullptr);
  EXPECT_THAT(launched_counts, testing::ElementsAre(most, most, 1));
}

TEST_F(RealRuntimeTest, CapturesAreSeen) {
  EXPECT_FALSE(runtime_.is_capturing(nullptr));
  cuda_calls_on_host.capture_status = cudaStreamCaptureStatusActive;
  EXPECT_TRUE(runtime_.is_capturing(nullptr));
  // Status of the default stream while a capture is active on a stream that waits for it.
  cuda_calls_on_host = {.is_capturing = cudaErrorStreamCaptureImplicit};
  EXPECT_TRUE(runtime_.is_capturing(nullptr));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RealRuntimeTest, AFailedCallIsNamedAndLeavesNoErrorToTheProgram) {
  cuda_calls_on_host.memory = cudaErrorInvalidValue;
  EXPECT_THAT(failure_of([this] { static_cast<void>(runtime_.allocate(8)); }),
              HasSubstr("cudaMalloc failed"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cuda_on_host.event = cudaErrorLaunchFailure;
  EXPECT_THAT(failure_of([this] { static_cast<void>(runtime_.is_done(nullptr)); }),
              HasSubstr("cudaEventQuery failed"));
}

TEST_F(RealRuntimeTest, CallsThatSucceedLeaveTheProgramsError) {
  cuda_on_host.last_error = cudaErrorInvalidValue;
  cuda_on_host.event = cudaErrorNotReady;
  EXPECT_FALSE(runtime_.is_done(nullptr));
  cuda_on_host.event = cudaSuccess;
  EXPECT_TRUE(runtime_.is_done(nullptr));
  EXPECT_EQ(runtime_.versions().driver, 13000);
  EXPECT_EQ(runtime_.device_count(), 1);
  EXPECT_EQ(runtime_.properties(0).name, "a host");
  EXPECT_NO_THROW(runtime_.check_kernels());
  EXPECT_EQ(runtime_.current_device(), 0);
  EXPECT_NO_THROW(runtime_.use_device(0));
  EXPECT_TRUE(runtime_.is_in_use(0));
  EXPECT_FALSE(runtime_.is_capturing(nullptr));
  EXPECT_EQ(runtime_.stream_id(nullptr), 7U);
  const StreamHandle stream = runtime_.create_stream();
  const EventHandle event = runtime_.create_event();
  EXPECT_NO_THROW(runtime_.record(event, stream));
  EXPECT_NO_THROW(runtime_.wait(stream, event));
  std::byte* const memory = runtime_.allocate(8);
  std::array<std::byte, 8> host{};
  const std::vector<Segment> segments{{host.data(), host.data(), 8}};
  EXPECT_NO_THROW(runtime_.copy(memory, host.data(), host.size(), CopyKind::to_device, stream));
  EXPECT_NO_THROW(runtime_.launch(segments, stream));
  EXPECT_NO_THROW(runtime_.synchronize(stream));
  EXPECT_NO_THROW(runtime_.synchronize(event));
  runtime_.release(memory);
  runtime_.destroy_event(event);
  runtime_.destroy_stream(stream);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kolo::internal::backend::gpu
