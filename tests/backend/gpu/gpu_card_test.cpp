// SPDX-License-Identifier: Apache-2.0
// Tests on a GPU if there is one: the kernel against its reference on the CPU, and NCCL with one
// rank. Without a GPU: the real libraries are found or their absence is explained, and nothing else
// happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "../doubles/fake_cuda.hpp"
#include "../shm/shm_host.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/transfer_element.hpp"
#include "backend/router/router.hpp"
#include "base/elements.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "transfer_types.hpp"

namespace kolo::internal::backend {
namespace {

constexpr Device first_gpu{DeviceType::cuda, 0};

TEST(RealLibraries, AreFoundWithoutAGpuOrSayWhyNot) {
  const auto cuda = gpu::find_runtime();
  EXPECT_EQ(cuda == nullptr, gpu::built_version().empty());
  if (cuda != nullptr) {
    EXPECT_GT(cuda->versions().runtime, 12000);
  }
  try {
    const auto nccl = nccl::find_library();
    EXPECT_EQ(nccl == nullptr, nccl::built_version().empty());
    if (nccl != nullptr) {
      EXPECT_GE(nccl->version(), 21800);
    }
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("NCCL"));
  }
}

class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_ == nullptr) GTEST_SKIP() << "this build is without CUDA";
    try {
      mark_ = gpu_.mark(first_gpu, nullptr);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    cuda_->use_device(0);
  }

  void await() {
    const gpu::Event done = gpu::make_event(cuda_);
    cuda_->record(done.get(), gpu_.stream());
    while (!cuda_->is_done(done.get())) continue;
  }

  std::shared_ptr<gpu::Runtime> cuda_ = gpu::find_runtime();
  gpu::Gpu gpu_{cuda_};
  std::shared_ptr<const gpu::ReadyMark> mark_{};
};

/// NaNs may differ in their bits.
struct Same {
  const gpu::Segment& segment;  // on the host
  const std::byte* expected;
  bool& all;

  template <typename From, typename To>
  void operator()() const {
    for (std::int64_t i = 0; i < segment.elements; ++i) {
      const auto a = load<To>(segment.to, i);
      const auto b = load<To>(expected, i);
      if constexpr (!std::is_same_v<To, gpu::Truth> && !std::integral<To>)
        if (std::isnan(computed(a)) && std::isnan(computed(b))) continue;
      all = all && std::memcmp(&a, &b, sizeof(To)) == 0;
    }
  }
};

/// At any alignment, of any length, all in one launch.
TEST_F(CardTest, TheKernelDoesWhatTheReferenceDoes) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<gpu::Segment> segments;  // with offsets for places
  std::size_t bytes = 0;
  const auto take = [&](std::int64_t elements, DType type) {
    const std::size_t place = bytes + random() % 17;
    bytes += static_cast<std::size_t>(elements * signed_size_of(type)) + 32;
    return reinterpret_cast<std::byte*>(place);
  };
  for (const Types types : all_types())
    for (const std::int64_t elements : {0, 1, 7, 16, 1000, 8192, 40001})
      for (const gpu::Scaling scaling :
           {gpu::Scaling{}, gpu::Scaling{3, 1.0}, gpu::Scaling{4, 1.0}, gpu::Scaling{1, 0.3}}) {
        gpu::Segment segment{.elements = elements, .scaling = scaling};
        segment.from_type = types.from;
        segment.to_type = types.to;
        segment.from = take(elements, types.from);
        segment.to = take(elements, types.to);
        segments.push_back(segment);
      }
  const auto device = gpu::make_device_memory(cuda_, bytes);
  const auto pinned = gpu::make_pinned_memory(cuda_, bytes);
  for (std::size_t i = 0; i < bytes; ++i) pinned.get()[i] = static_cast<std::byte>(random());
  std::vector<std::byte> expected(pinned.get(), pinned.get() + bytes);
  const auto at = [](gpu::Segment segment, std::byte* base) {
    segment.from = base + reinterpret_cast<std::uintptr_t>(segment.from);
    segment.to = base + reinterpret_cast<std::uintptr_t>(segment.to);
    return segment;
  };
  cuda_->copy(device.get(), pinned.get(), bytes, gpu::CopyKind::to_device, gpu_.stream());
  gpu::TransferLaunch transfers;
  for (const gpu::Segment& segment : segments) transfers.add(at(segment, device.get()));
  transfers.launch(gpu_, gpu_.stream());
  cuda_->copy(pinned.get(), device.get(), bytes, gpu::CopyKind::to_host, gpu_.stream());
  await();
  for (const gpu::Segment& segment : segments) {
    const gpu::Segment reference = at(segment, expected.data());
    transfer_on_host(reference);
    bool same = true;
    const Same compare{at(segment, pinned.get()), reference.to, same};
    gpu::visit_types(segment.from_type, segment.to_type, compare);
    EXPECT_TRUE(same) << to_string(segment.from_type) << " to " << to_string(segment.to_type)
                      << ", " << segment.elements << " elements, divisor "
                      << segment.scaling.divisor << ", scale " << segment.scaling.scale;
  }
}

/// An out-of-place allreduce of one rank, with a prescale of 2.
struct Allreduce {
  Allreduce(const std::shared_ptr<gpu::Runtime>& cuda, gpu::Gpu& gpu, int rank)
      : host(gpu::make_pinned_memory(cuda, bytes)),
        from(gpu::make_device_memory(cuda, bytes)),
        to(gpu::make_device_memory(cuda, bytes)) {
    auto* const numbers = reinterpret_cast<float*>(host.get());
    for (std::int64_t k = 0; k < elements; ++k) numbers[k] = static_cast<float>(k + rank);
    cuda->copy(from.get(), host.get(), bytes, gpu::CopyKind::to_device, gpu.stream());
    cuda->synchronize(gpu.stream());
    member = {.input = from.get(),
              .output = to.get(),
              .dtype = DType::f32,
              .rows = elements,
              .ready = gpu.mark(first_gpu, nullptr)};
  }
  [[nodiscard]] Batch batch(const std::vector<int>& ranks) const {
    Batch made{.kind = {.type = OperationType::allreduce, .op = ReduceOp::sum, .device = own_gpu},
               .tensors = {&member},
               .set = ranks,
               .ranks = ranks};
    made.kind.prescale = 2.0;
    return made;
  }
  void expect_sum(gpu::Runtime& cuda, gpu::Gpu& gpu, int ranks) {
    cuda.copy(host.get(), to.get(), bytes, gpu::CopyKind::to_host, gpu.stream());
    cuda.synchronize(gpu.stream());
    const auto* const numbers = reinterpret_cast<const float*>(host.get());
    for (std::int64_t k = 0; k < elements; ++k)
      ASSERT_EQ(numbers[k], static_cast<float>(2 * ranks * k + ranks * (ranks - 1)));
  }

  static constexpr std::int64_t elements = 100000;
  static constexpr std::size_t bytes = elements * sizeof(float);

  gpu::PinnedMemory host;
  gpu::DeviceMemory from;
  gpu::DeviceMemory to;
  BatchTensor member{};
};

/// Among ranks of this process, which share the GPU.
void expect_sums(const std::shared_ptr<gpu::Runtime>& cuda, GpuOperations operations,
                 const std::vector<int>& ranks) {
  const Settings settings{.gpu_operations = operations};
  ShmHost host(ranks, 4096);
  std::deque<gpu::Gpu> gpus;
  std::deque<Router> backends;
  std::deque<Allreduce> allreduces;
  for (const int rank : ranks) {
    gpu::Gpu& gpu = gpus.emplace_back(cuda);
    static_cast<void>(gpu.mark(first_gpu, nullptr));
    backends.emplace_back(host.backend(rank), gpu, rank, nccl::find_library, settings,
                          Router::Options{});
    allreduces.emplace_back(cuda, gpu, rank);
  }
  std::vector<std::unique_ptr<Execution>> running;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    running.push_back(backends[i].start(allreduces[i].batch(ranks)));
  while (!running.empty())
    std::erase_if(running, [](auto& execution) { return execution->step() == Progress::done; });
  for (std::size_t i = 0; i < ranks.size(); ++i)
    allreduces[i].expect_sum(*cuda, gpus[i], static_cast<int>(ranks.size()));
}

TEST_F(CardTest, OneRankOverNccl) {
  if (nccl::built_version().empty()) GTEST_SKIP() << "this build is without NCCL";
  expect_sums(cuda_, GpuOperations::nccl, {0});
}

TEST_F(CardTest, OneRankByWayOfTheHost) { expect_sums(cuda_, GpuOperations::staged, {0}); }

/// NCCL 2.30 and later let ranks share a GPU.
TEST_F(CardTest, TwoRanksInOneProcess) {
  const auto nccl = nccl::find_library();
  if (nccl == nullptr || !nccl->allows_shared_gpus())
    GTEST_SKIP() << "needs NCCL 2.30, and NCCL_MULTI_RANK_GPU_ENABLE=1";
  expect_sums(cuda_, GpuOperations::nccl, {0, 1});
  expect_sums(cuda_, GpuOperations::staged, {0, 1});
}

}  // namespace
}  // namespace kolo::internal::backend
