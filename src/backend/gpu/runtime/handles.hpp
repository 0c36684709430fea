// Owners of what the CUDA runtime gives out, and pools of memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/gpu/runtime/runtime.hpp"

namespace kolo::internal::backend::gpu {

/// Makes `device` the thread's current one while it lives. Does not go back to a device that nobody
/// has used: that would take memory there.
class DeviceGuard {
 public:
  DeviceGuard(Runtime& runtime, int device) : runtime_(runtime), before_(runtime.current_device()) {
    if (before_ == device) return;
    runtime_.use_device(device);
    changed_ = true;
  }
  ~DeviceGuard() {
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
};

/// Owns a handle that `destroy` takes back.
template <typename Handle, void (Runtime::*destroy)(Handle) noexcept>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<Runtime> runtime, Handle handle)
      : runtime_(std::move(runtime)), handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept
      : runtime_(std::move(other.runtime_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this == &other) return *this;
    reset();
    runtime_ = std::move(other.runtime_);
    handle_ = std::exchange(other.handle_, nullptr);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  [[nodiscard]] Handle get() const { return handle_; }

 private:
  void reset() noexcept {
    if (handle_ != nullptr) ((*runtime_).*destroy)(std::exchange(handle_, nullptr));
  }

  std::shared_ptr<Runtime> runtime_{};
  Handle handle_ = nullptr;
};

using Stream = Owned<StreamHandle, &Runtime::destroy_stream>;
using Event = Owned<EventHandle, &Runtime::destroy_event>;
using DeviceMemory = Owned<std::byte*, &Runtime::release>;
using PinnedMemory = Owned<std::byte*, &Runtime::release_pinned>;

[[nodiscard]] inline Stream make_stream(const std::shared_ptr<Runtime>& runtime) {
  return {runtime, runtime->create_stream()};
}
[[nodiscard]] inline Event make_event(const std::shared_ptr<Runtime>& runtime) {
  return {runtime, runtime->create_event()};
}
[[nodiscard]] inline DeviceMemory make_device_memory(const std::shared_ptr<Runtime>& runtime,
                                                     std::size_t bytes) {
  return {runtime, runtime->allocate(bytes)};
}
[[nodiscard]] inline PinnedMemory make_pinned_memory(const std::shared_ptr<Runtime>& runtime,
                                                     std::size_t bytes) {
  return {runtime, runtime->allocate_pinned(bytes)};
}

/// Memory that is expensive to get, kept for the next batch. Blocks go back by themselves, unless
/// they are abandoned: then they stay unused until the pool is gone. It outlives its blocks. One
/// thread at a time.
template <typename Memory>
class BlockPool {
 public:
  using Make = std::function<Memory(const std::shared_ptr<Runtime>&, std::size_t bytes)>;

  class Block {
   public:
    Block() = default;
    Block(BlockPool& pool, Memory memory, std::size_t bytes)
        : pool_(&pool), memory_(std::move(memory)), bytes_(bytes) {}
    ~Block() { give_back(); }
    Block(Block&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          memory_(std::move(other.memory_)),
          bytes_(other.bytes_) {}
    Block& operator=(Block&& other) noexcept {
      if (this == &other) return *this;
      give_back();
      pool_ = std::exchange(other.pool_, nullptr);
      memory_ = std::move(other.memory_);
      bytes_ = other.bytes_;
      return *this;
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    [[nodiscard]] std::byte* data() const { return memory_.get(); }
    [[nodiscard]] const Memory& memory() const { return memory_; }
    /// The GPU may still use it.
    void abandon() {
      if (pool_ != nullptr) std::exchange(pool_, nullptr)->abandoned_.push_back(std::move(memory_));
    }

   private:
    void give_back() noexcept {
      if (pool_ != nullptr)
        std::exchange(pool_, nullptr)->free_.push_back({std::move(memory_), bytes_});
    }

    BlockPool* pool_ = nullptr;
    Memory memory_{};
    std::size_t bytes_ = 0;
  };

  BlockPool(std::shared_ptr<Runtime> runtime, Make make)
      : runtime_(std::move(runtime)), make_(std::move(make)) {}

  /// At least so many bytes, at least one; sizes are powers of two, so that few are made.
  [[nodiscard]] Block take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, min_bytes));
    const auto found = std::ranges::find(free_, size, &Free::bytes);
    if (found == free_.end()) return {*this, make_(runtime_, size), size};
    Block block(*this, std::move(found->memory), size);
    free_.erase(found);
    return block;
  }

  /// Of what is in it.
  void clear() {
    free_.clear();
    abandoned_.clear();
  }

 private:
  static constexpr std::size_t min_bytes = 4096;

  struct Free {
    Memory memory;
    std::size_t bytes;
  };

  std::shared_ptr<Runtime> runtime_;
  Make make_;
  std::vector<Free> free_{};
  std::vector<Memory> abandoned_{};
};

}  // namespace kolo::internal::backend::gpu
