// SPDX-License-Identifier: Apache-2.0
// Memory for a tensor, on the host and optionally on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <kolo/cuda.hpp>
#include <kolo/shared_memory.hpp>
#include <kolo/tensor.hpp>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "workload.hpp"

namespace perf {

/// Uninitialized bytes, aligned to a cache line as LibTorch's tensors are. Shared memory comes from
/// Kolo, which falls back to private memory where it has none.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes, Memory memory = Memory::own,
                  std::optional<kolo::CudaDevice> gpu = {})
      : size_(static_cast<std::size_t>(bytes)), gpu_(std::move(gpu)) {
    if (gpu_) on_gpu_ = gpu_->allocate(size_);
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (size_ / alignment + 1) * alignment;
    if (memory == Memory::shared) {
      kolo::SharedAllocator<std::byte> allocator;
      data_ = {allocator.allocate(rounded), [allocator, rounded](std::byte* block) mutable {
                 allocator.deallocate(block, rounded);
               }};
    } else {
      data_ = {static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)),
               [](std::byte* block) { std::free(block); }};
    }
    if (data_ == nullptr) throw std::bad_alloc();
  }

  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  /// The memory that Kolo is given: on the GPU if there is one.
  [[nodiscard]] std::byte* tensor() { return gpu_ ? on_gpu_.get() : data_.get(); }
  [[nodiscard]] kolo::TensorView view(kolo::Shape shape, kolo::DType dtype) {
    const kolo::Device cpu{};
    return {tensor(), std::move(shape), dtype,
            gpu_ ? kolo::Device{kolo::DeviceType::cuda, gpu_->index()} : cpu};
  }

  // Copy between host and GPU; without a GPU they do nothing.
  void upload() {
    if (gpu_) gpu_->copy_to_device(on_gpu_.get(), data_.get(), size_);
  }
  void fetch() {
    if (gpu_) gpu_->copy_to_host(data_.get(), on_gpu_.get(), size_);
  }

 private:
  std::size_t size_;
  std::optional<kolo::CudaDevice> gpu_;
  std::shared_ptr<std::byte> on_gpu_{};
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{};
};

}  // namespace perf
