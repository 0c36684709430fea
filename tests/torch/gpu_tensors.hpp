// SPDX-License-Identifier: Apache-2.0
// GPU tensors in kolo::torch, with test doubles for Kolo's CUDA interface and for LibTorch's view
// of GPUs: their number, streams and memory. The doubles compute nothing: tests queue work on a
// stream, which runs it with a delay.
#pragma once

#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"
#include "session/api/current.hpp"

namespace kolo::internal {

using backend::FakeCuda;
using ::torch::Tensor;

inline std::shared_ptr<FakeCuda> cuda;                    // this rank's double, while a test runs
inline backend::gpu::StreamHandle user_stream = nullptr;  // LibTorch's current one, on every thread
inline std::atomic<int> allocated_between_streams{0};

inline c10::Device this_gpu() {
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(rank())};
}

/// An allocation of floats on a GPU, which lives as long as the tensor. `is_for_kolo`: Kolo's
/// stream writes it first.
inline Tensor make_tensor(at::IntArrayRef sizes, bool is_for_kolo = false) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  auto* const memory = is_for_kolo ? cuda->make_fresh_memory(bytes) : cuda->make_memory(bytes);
  const auto release = [](void* pointer) {
    cuda->free_memory(static_cast<std::byte*>(pointer), user_stream);
  };
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(memory, memory, release, this_gpu()));
  Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

inline float* numbers_of(const Tensor& tensor) { return static_cast<float*>(tensor.data_ptr()); }

/// Fills the tensor on the user's stream, with a delay.
template <typename Value>
void fill_later(const Tensor& tensor, Value value) {
  cuda->enqueue(user_stream,
                [to = numbers_of(tensor), count = tensor.numel(), value, looks = 0]() mutable {
                  if (++looks < 20) return false;
                  for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<float>(value(k));
                  return true;
                });
}

template <typename Value>
Tensor filled(at::IntArrayRef sizes, Value value) {
  Tensor tensor = make_tensor(sizes);
  fill_later(tensor, value);
  return tensor;
}

/// True: over NCCL, else through the host.
class TorchGpuTest : public testing::TestWithParam<bool> {
 protected:
  TorchGpuTest() {
    cuda = std::make_shared<FakeCuda>(std::vector{0, 1, 2, 3}, 11, FakeCuda::Clock::by_itself);
    std::shared_ptr<backend::FakeNccl> nccl;
    if (GetParam()) {
      world_ = backend::FakeNcclWorld::of_job();
      nccl = std::make_shared<backend::FakeNccl>(world_, cuda);
      nccl->notices_aborts = false;
    }
    session::start_session({.options = {.flight_recorder_dir = "off"},
                            .gpu_libraries = {cuda, [nccl] { return nccl; }}});
    cuda->use_device(rank());
    user_stream = cuda->create_stream();
    kolo::detail::set_framework_stream([](int) { return user_stream; });
    allocated_between_streams = 0;
  }
  ~TorchGpuTest() override {
    cuda->destroy_stream(std::exchange(user_stream, nullptr));
    session::end_session(true, "");
    for (const std::string& complaint : cuda->complaints()) ADD_FAILURE() << complaint;
    if (world_ != nullptr)
      for (const std::string& complaint : world_->complaints()) ADD_FAILURE() << complaint;
    cuda.reset();
  }

 private:
  std::shared_ptr<backend::FakeNcclWorld> world_{};
};
inline double sum_of_ranks() { return size() * (size() - 1) / 2.0; }

template <typename Value>
void expect_numbers(const Tensor& tensor, Value wanted) {
  ASSERT_TRUE(tensor.is_cuda());
  cuda->synchronize(user_stream);
  for (std::int64_t k = 0; k < tensor.numel(); ++k)
    ASSERT_FLOAT_EQ(numbers_of(tensor)[k], static_cast<float>(wanted(k))) << k;
}

}  // namespace kolo::internal
