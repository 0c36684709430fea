// SPDX-License-Identifier: Apache-2.0
// A session of real processes whose GPUs and NCCL are doubles.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"
#include "session/api/current.hpp"

namespace kolo::internal {

enum class GpuPathTested : std::uint8_t { nccl, staged };

inline const auto gpu_paths = testing::Values(GpuPathTested::nccl, GpuPathTested::staged);

inline std::string name_of_path(const testing::TestParamInfo<GpuPathTested>& info) {
  return info.param == GpuPathTested::nccl ? "OverNccl" : "ThroughTheHost";
}

/// Each rank uses the GPU with its rank as index.
class GpuSession : public testing::TestWithParam<GpuPathTested> {
 protected:
  explicit GpuSession(SessionOptions options = {}) {
    options.flight_recorder_dir = "off";
    if (GetParam() == GpuPathTested::nccl) {
      world_ = backend::FakeNcclWorld::of_job();
      nccl_ = std::make_shared<backend::FakeNccl>(world_, cuda_);
      nccl_->notices_aborts = false;
    }
    start(options);
  }
  void start(const SessionOptions& options) {
    session::start_session(
        {.options = options, .gpu_libraries = {cuda_, [nccl = nccl_] { return nccl; }}});
  }
  ~GpuSession() override {
    session::end_session(true, "");
    for (std::byte* memory : memory_) cuda_->free_memory(memory);
    if (stream_ != nullptr) cuda_->destroy_stream(stream_);
    for (const std::string& complaint : cuda_->complaints())
      if (!leaves_memory_ || !complaint.ends_with("pieces of memory are left"))
        ADD_FAILURE() << complaint;
    if (world_ == nullptr) return;
    for (const std::string& complaint : world_->complaints()) ADD_FAILURE() << complaint;
    EXPECT_EQ(nccl_->communicators(), 0);
  }

  [[nodiscard]] static Device device() { return {DeviceType::cuda, rank()}; }
  [[nodiscard]] static double sum_of_ranks() { return size() * (size() - 1) / 2.0; }

  /// Memory on the GPU, which the user's stream fills later.
  template <typename Value>
  float* make(std::int64_t elements, Value value) {
    auto* const tensor = static_cast<float*>(allocate(elements));
    std::vector<float> values;
    for (std::int64_t k = 0; k < elements; ++k) values.push_back(static_cast<float>(value(k)));
    cuda_->enqueue(stream(), [tensor, values = std::move(values)] {
      std::copy(values.begin(), values.end(), tensor);
      return true;
    });
    return tensor;
  }
  void* allocate(std::int64_t elements) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
    return memory_.emplace_back(cuda_->make_memory(bytes));
  }
  /// The elements, when the user's stream has come to them.
  [[nodiscard]] std::vector<float> read(const float* tensor, std::int64_t elements) {
    cuda_->synchronize(stream());
    return {tensor, tensor + elements};
  }
  [[nodiscard]] TensorView view(float* tensor, std::int64_t elements) const {
    return {tensor, Shape{elements}, device()};
  }
  [[nodiscard]] backend::gpu::StreamHandle stream() {
    if (stream_ == nullptr) {
      cuda_->use_device(rank());
      stream_ = cuda_->create_stream();
    }
    return stream_;
  }

  std::shared_ptr<backend::FakeCuda> cuda_ = std::make_shared<backend::FakeCuda>(
      std::vector{0, 1, 2, 3}, 7, backend::FakeCuda::Clock::by_itself);
  std::shared_ptr<backend::FakeNcclWorld> world_{};
  std::shared_ptr<backend::FakeNccl> nccl_{};  // null if tensors are staged through the host
  bool leaves_memory_ = false;                 // leaves memory unreleased

 private:
  backend::gpu::StreamHandle stream_ = nullptr;
  std::vector<std::byte*> memory_{};
};

}  // namespace kolo::internal
