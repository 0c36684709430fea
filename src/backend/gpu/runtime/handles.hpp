// SPDX-License-Identifier: Apache-2.0
// Owners of handles of the CUDA runtime, and pools of memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "backend/gpu/runtime/runtime.hpp"

namespace kolo::internal::backend::gpu {

/// Makes `device` the thread's current device while this object lives. Also permits calls such as
/// cudaMalloc, which would otherwise invalidate a graph that the program is capturing, although
/// they do not concern the captured stream. Does not switch back to a device that is not in use,
/// since that would allocate memory there.
class DeviceGuard {
 public:
  DeviceGuard(Runtime& runtime, int device) : runtime_(runtime), before_(runtime.current_device()) {
    if (before_ != device) {
      runtime_.use_device(device);
      changed_ = true;
    }
    mode_ = runtime_.exchange_capture_mode(CaptureMode::relaxed);
  }
  ~DeviceGuard() {
    static_cast<void>(runtime_.exchange_capture_mode(mode_));
    if (!changed_) return;
    try {
      if (runtime_.is_in_use(before_)) runtime_.use_device(before_);
    } catch (...) {  // the thread stays on this device
      changed_ = false;
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Runtime& runtime_;
  int before_;
  bool changed_ = false;
  CaptureMode mode_ = CaptureMode::global;
};

/// Returns a handle to the runtime that created it.
template <auto destroy>
struct Destroy {
  std::shared_ptr<Runtime> runtime{};

  template <typename Handle>
  void operator()(Handle handle) const noexcept {
    ((*runtime).*destroy)(handle);
  }
};

using Stream = std::unique_ptr<CUstream_st, Destroy<&Runtime::destroy_stream>>;
using Event = std::unique_ptr<CUevent_st, Destroy<&Runtime::destroy_event>>;
using DeviceMemory = std::unique_ptr<std::byte, Destroy<&Runtime::release>>;
using PinnedMemory = std::unique_ptr<std::byte, Destroy<&Runtime::release_pinned>>;

[[nodiscard]] inline Stream make_stream(const std::shared_ptr<Runtime>& runtime) {
  return {runtime->create_stream(), {runtime}};
}
[[nodiscard]] inline Event make_event(const std::shared_ptr<Runtime>& runtime) {
  return {runtime->create_event(), {runtime}};
}
[[nodiscard]] inline DeviceMemory make_device_memory(const std::shared_ptr<Runtime>& runtime,
                                                     std::size_t bytes) {
  return {runtime->allocate(bytes), {runtime}};
}
[[nodiscard]] inline PinnedMemory make_pinned_memory(const std::shared_ptr<Runtime>& runtime,
                                                     std::size_t bytes) {
  return {runtime->allocate_pinned(bytes), {runtime}};
}

/// Keeps pinned memory for later batches, because it is expensive to allocate. A block returns to
/// the pool when it is destroyed. An abandoned block stays unused until the pool is destroyed. The
/// pool must outlive its blocks. One thread at a time.
class BlockPool {
  struct Item {
    PinnedMemory memory;
    std::size_t bytes;
  };
  struct GiveBack {
    BlockPool* pool;

    void operator()(Item* item) const noexcept { pool->free_.emplace_back(item); }
  };

 public:
  class Block {
   public:
    Block() = default;
    Block(BlockPool& pool, std::unique_ptr<Item> item) : item_(item.release(), {&pool}) {}

    [[nodiscard]] std::byte* data() const { return item_ ? item_->memory.get() : nullptr; }
    /// Withholds the block from reuse: the GPU may still access it.
    void abandon() {
      if (item_) item_.get_deleter().pool->abandoned_.emplace_back(item_.release());
    }

   private:
    std::unique_ptr<Item, GiveBack> item_{};
  };

  explicit BlockPool(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  /// A block of at least `bytes`. Sizes are powers of two, so that blocks are often reused.
  [[nodiscard]] Block take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, min_bytes));
    const auto found = std::ranges::find(free_, size, [](const auto& item) { return item->bytes; });
    if (found == free_.end())
      return {*this, std::make_unique<Item>(Item{make_pinned_memory(runtime_, size), size})};
    Block block(*this, std::move(*found));
    free_.erase(found);
    return block;
  }

  /// Leaks all memory that is in the pool.
  void leak() {
    for (auto* items : {&free_, &abandoned_}) {
      for (auto& item : *items) static_cast<void>(item->memory.release());
      items->clear();
    }
  }

 private:
  static constexpr std::size_t min_bytes = 4096;

  std::shared_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<Item>> free_{};
  std::vector<std::unique_ptr<Item>> abandoned_{};
};

}  // namespace kolo::internal::backend::gpu
