// SPDX-License-Identifier: Apache-2.0
// The memory of LibTorch's tensors on the CPU.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/version.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

/// Allocates the memory of all tensors on the CPU, and counts it.
class TensorMemory final : public c10::Allocator {
 public:
  /// Call it before the first tensor exists.
  static void count() {
    static TensorMemory allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
  }
  /// If false, allocating throws, as it does without memory.
  static void set_available(bool available) { is_available_ = available; }
  /// Makes the next allocation of this size throw.
  static void fail_once(std::size_t bytes) { fails_at_ = bytes; }
  /// Bytes in use.
  [[nodiscard]] static std::int64_t now() { return now_; }
  /// The most bytes that `action` uses beyond those in use before it.
  template <typename Action>
  [[nodiscard]] static std::int64_t peak_of(const Action& action) {
    const std::int64_t before = now_;
    peak_ = before;
    action();
    return peak_ - before;
  }

#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  c10::DataPtr allocate(std::size_t bytes) override {
#else
  c10::DataPtr allocate(std::size_t bytes) const override {
#endif
    std::size_t expected = bytes;
    const bool fails = !is_available_ || fails_at_.compare_exchange_strong(expected, 0);
    TORCH_CHECK(!fails || bytes == 0, "no memory for tensors");
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* const memory = bytes == 0 ? nullptr : std::aligned_alloc(alignment, rounded);
    TORCH_CHECK(bytes == 0 || memory != nullptr, "no memory for ", bytes, " bytes");
    if (memory != nullptr) {
      const std::int64_t held = now_ += size_of(memory);
      std::int64_t peak = peak_;
      while (held > peak && !peak_.compare_exchange_weak(peak, held)) continue;
    }
    return {memory, memory, &drop, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &drop; }

 private:
  static std::int64_t size_of(void* memory) {
    return static_cast<std::int64_t>(malloc_usable_size(memory));
  }
  static void drop(void* memory) {
    if (memory == nullptr) return;
    now_ -= size_of(memory);
    std::free(memory);
  }

  static inline std::atomic<bool> is_available_{true};
  static inline std::atomic<std::size_t> fails_at_{0};
  static inline std::atomic<std::int64_t> now_{0};
  static inline std::atomic<std::int64_t> peak_{0};
};
