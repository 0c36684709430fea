// Owners of what the CUDA runtime gives out.
#pragma once

#include <cstddef>
#include <utility>

#include "backend/cuda/runtime.hpp"

namespace kolo::backend::cuda {

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

}  // namespace kolo::backend::cuda
