// Private memory for a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace perf {

/// Bytes that start at a cache line, as LibTorch's tensors do. Not set to anything.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes) : size_(static_cast<std::size_t>(bytes)) {
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (size_ / alignment + 1) * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
  }

  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace perf
