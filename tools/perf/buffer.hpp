// Memory for a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <kolo/shared_memory.hpp>
#include <memory>
#include <new>
#include <span>

#include "options.hpp"

namespace perf {

/// Bytes that start at a cache line, as LibTorch's tensors do. Not set to anything. Shared memory
/// is Kolo's, where it has some; private memory else.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes, Memory memory = Memory::own)
      : size_(static_cast<std::size_t>(bytes)) {
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

 private:
  std::size_t size_;
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{};
};

}  // namespace perf
