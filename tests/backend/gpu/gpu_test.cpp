// SPDX-License-Identifier: Apache-2.0
// Checks before a GPU is used, and the errors that they raise.
#include "backend/gpu/runtime/gpu.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "../doubles/fake_cuda.hpp"
#include "backend/gpu/nccl/nccl_backend.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

using testing::HasSubstr;

constexpr Device cuda_device(int index) { return {DeviceType::cuda, index}; }

class GpuTest : public testing::Test {
 protected:
  ~GpuTest() override {
    gpu_.reset();
    for (const std::string& complaint : cuda_->complaints()) ADD_FAILURE() << complaint;
  }

  template <typename Error>
  void expect_refused(Device device, const std::string& text) {
    try {
      static_cast<void>(gpu_->mark(device, nullptr));
      ADD_FAILURE() << "it was not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }

  std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>(std::vector{0, 1}, 1);
  std::unique_ptr<gpu::Gpu> gpu_ = std::make_unique<gpu::Gpu>(cuda_);
};

TEST_F(GpuTest, NothingIsCalledBeforeATensorIsSeen) {
  EXPECT_TRUE(cuda_->faults.counts().empty());
  EXPECT_FALSE(cuda_->is_in_use(0));
}

TEST_F(GpuTest, UsesTheDeviceOfTheTensorAndNoOther) {
  static_cast<void>(gpu_->mark(cuda_device(1), nullptr));
  EXPECT_EQ(gpu_->index(), 1);
  EXPECT_TRUE(cuda_->is_in_use(1));
  EXPECT_FALSE(cuda_->is_in_use(0)) << "memory is taken on a device that nobody has asked for";
}

TEST_F(GpuTest, ManyListsOfRanksShareFewStreams) {
  static_cast<void>(gpu_->mark(cuda_device(0), nullptr));
  const auto made = [this] { return cuda_->faults.made("cudaStreamCreateWithPriority"); };
  const int before = made();
  std::vector<gpu::StreamHandle> streams;
  for (int other = 1; other < 100; ++other) streams.push_back(gpu_->stream_of({0, other}));
  EXPECT_EQ(made() - before, 16);
  EXPECT_EQ(std::set(streams.begin(), streams.begin() + 16).size(), 16U);
  EXPECT_EQ(std::set(streams.begin(), streams.end()).size(), 16U);
  for (int other = 1; other < 100; ++other)
    EXPECT_EQ(gpu_->stream_of({0, other}), streams[static_cast<std::size_t>(other - 1)]);
}

TEST_F(GpuTest, RefusesADeviceThatIsNotThere) {
  expect_refused<InvalidArgument>(cuda_device(2),
                                  "there is no cuda:2 in this process, which sees 2");
  expect_refused<InvalidArgument>(cuda_device(-1), "there is no cuda:-1");
  EXPECT_NE(gpu_->mark(cuda_device(0), nullptr), nullptr) << "a good one is good afterwards";
}

TEST_F(GpuTest, RefusesASecondDevice) {
  static_cast<void>(gpu_->mark(cuda_device(0), nullptr));
  expect_refused<InvalidArgument>(cuda_device(1), "on cuda:0 before");
}

TEST_F(GpuTest, RefusesAMachineWithoutDriver) {
  cuda_->reported = {0, 13000};
  expect_refused<InvalidArgument>(cuda_device(0), "no CUDA driver");
}

TEST_F(GpuTest, RefusesADriverThatIsTooOld) {
  cuda_->reported = {12080, 13000};
  expect_refused<InvalidArgument>(cuda_device(0),
                                  "for CUDA 12.8, which is older than the CUDA 13.0");
}

TEST_F(GpuTest, TakesADriverThatIsNewerOrOfTheSameMajorVersion) {
  cuda_->reported = {13000, 13020};
  EXPECT_NE(gpu_->mark(cuda_device(0), nullptr), nullptr);
}

TEST_F(GpuTest, RefusesAGpuThatThisBuildHasNoCodeFor) {
  cuda_->has_kernels = false;
  expect_refused<InvalidArgument>(cuda_device(0), "CMAKE_CUDA_ARCHITECTURES");
}

TEST_F(GpuTest, EveryCallThatFailsIsNamed) {
  for (const char* call :
       {"cudaDriverGetVersion", "cudaGetDeviceCount", "cudaGetDeviceProperties",
        "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaEventRecord"}) {
    cuda_->faults.plan(call);
    expect_refused<BackendError>(cuda_device(0), std::string(call) + " failed");
  }
  EXPECT_NE(gpu_->mark(cuda_device(0), nullptr), nullptr) << "and the next is good";
}

TEST_F(GpuTest, AStreamWaitsOnceForEachStreamThatItsTensorsComeFrom) {
  const gpu::StreamHandle first = cuda_->create_stream();
  const gpu::StreamHandle second = cuda_->create_stream();
  const gpu::StreamHandle target = cuda_->create_stream();
  std::vector<BatchTensor> members(12);
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i].ready = gpu_->mark(cuda_device(0), i % 3 == 0 ? first : second);
  std::vector<const BatchTensor*> pointers;
  for (const BatchTensor& member : members) pointers.push_back(&member);
  gpu_->await(pointers, target);
  EXPECT_EQ(cuda_->faults.counts().at("cudaStreamWaitEvent"), 2);
  for (const gpu::StreamHandle stream : {first, second, target}) cuda_->destroy_stream(stream);
}

TEST_F(GpuTest, WaitsForBothStreamsThatHadOneHandle) {
  const gpu::StreamHandle target = cuda_->create_stream();
  std::vector<BatchTensor> members(4);
  const gpu::StreamHandle first = cuda_->create_stream();
  members[0].ready = gpu_->mark(cuda_device(0), first);
  cuda_->destroy_stream(first);
  const gpu::StreamHandle second = cuda_->create_stream();
  ASSERT_EQ(second, first);
  members[1].ready = gpu_->mark(cuda_device(0), second);
  // Each thread has another stream behind this handle.
  members[2].ready = gpu_->mark(cuda_device(0), FakeCuda::per_thread_stream());
  std::thread([&] {
    members[3].ready = gpu_->mark(cuda_device(0), FakeCuda::per_thread_stream());
  }).join();
  std::vector<const BatchTensor*> pointers;
  for (const BatchTensor& member : members) pointers.push_back(&member);
  gpu_->await(pointers, target);
  EXPECT_EQ(cuda_->faults.counts().at("cudaStreamWaitEvent"), 4);
  members.clear();
  for (const gpu::StreamHandle stream : {second, target}) cuda_->destroy_stream(stream);
}

TEST_F(GpuTest, RefusesTheDefaultStreamDuringACapture) {
  EXPECT_FALSE(gpu_->mark(cuda_device(0), nullptr)->captured());
  const gpu::StreamHandle stream = cuda_->create_stream();
  cuda_->begin_capture(stream);
  EXPECT_TRUE(gpu_->mark(cuda_device(0), stream)->captured());
  try {
    static_cast<void>(gpu_->mark(cuda_device(0), nullptr));
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("legacy default stream"));
  }
  cuda_->end_capture(stream);
  EXPECT_FALSE(gpu_->mark(cuda_device(0), stream)->captured());
  cuda_->destroy_stream(stream);
}

TEST_F(GpuTest, RefusesGpusThatAreHidden) {
  const auto none = std::make_shared<FakeCuda>(std::vector<int>{}, 1);
  try {
    static_cast<void>(gpu::Gpu(none).mark(cuda_device(0), nullptr));
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("sees 0 GPUs (CUDA_VISIBLE_DEVICES"));
  }
}

TEST(BlockPoolTest, GivesTheSameMemoryAgainButNotWhatIsAbandoned) {
  const auto cuda = std::make_shared<FakeCuda>(std::vector{0}, 1);
  {
    gpu::BlockPool pool(cuda);
    const std::byte* first = nullptr;
    {
      const auto block = pool.take(5000);
      first = block.data();
    }
    auto block = pool.take(8000);
    EXPECT_EQ(block.data(), first);
    block.abandon();
    EXPECT_NE(pool.take(8000).data(), first);
  }
  EXPECT_THAT(cuda->complaints(), testing::IsEmpty());
}

class PathTest : public testing::Test {
 protected:
  PathTest() {
    for (std::size_t i = 0; i < cards_.size(); ++i) {
      cards_[i].uuid.front() = static_cast<char>(i + 1);
      cards_[i].nccl_version = 22809;
      cards_[i].device = static_cast<int>(i);
    }
  }
  [[nodiscard]] nccl::GpuPath path() const {
    return nccl::select_path(std::vector{2, 5, 7}, cards_);
  }

  std::array<nccl::GpuInfo, 3> cards_{};
};

TEST_F(PathTest, IsNcclForRanksWithAGpuEach) { EXPECT_TRUE(path().nccl); }

TEST_F(PathTest, IsNotNcclForTwoRanksOnOneGpu) {
  cards_[2].uuid = cards_[0].uuid;
  EXPECT_FALSE(path().nccl);
  EXPECT_THAT(path().why_not, HasSubstr("ranks 2 and 7 use the same GPU (cuda:0 and cuda:2"));
}

TEST_F(PathTest, IsNcclForRanksThatMayShareAGpu) {
  cards_[2].uuid = cards_[0].uuid;
  cards_[0].may_share_gpu = 1;
  EXPECT_FALSE(path().nccl) << "rank 7 may not";
  cards_[2].may_share_gpu = 1;
  EXPECT_TRUE(path().nccl);
}

TEST_F(PathTest, IsNotNcclIfARankHasNone) {
  cards_[1].why_no_nccl = {"it is too old"};
  EXPECT_EQ(path().why_not, "rank 5: it is too old");
}

TEST_F(PathTest, IsNotNcclIfVersionsDiffer) {
  cards_[1].nccl_version = 23007;
  EXPECT_EQ(path().why_not, "rank 2 has NCCL 2.28.9, rank 5 has NCCL 2.30.7");
}

}  // namespace
}  // namespace kolo::internal::backend
