// SPDX-License-Identifier: Apache-2.0
// The end of a batch whose work is queued on the GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/gpu/runtime/handles.hpp"
#include "backend/gpu/runtime/runtime.hpp"

namespace kolo::internal::backend::gpu {

/// The end of one batch on the GPU: an event that is recorded behind the batch's work. The driver
/// settles it once; other threads wait for it. Thread-safe.
class Completion {
 public:
  /// Whether the batch is executed once, as captured work would be, or by each replay of a graph.
  enum class Kind : std::uint8_t { ordinary, before_graph, captured };

  /// The batch is all work that is on `stream` now. `device` is the current one.
  Completion(std::shared_ptr<Runtime> runtime, int device, StreamHandle stream,
             Kind kind = Kind::ordinary)
      : runtime_(std::move(runtime)), device_(device), kind_(kind), event_(make_event(runtime_)) {
    runtime_->record(event_.get(), stream);
  }

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] Kind kind() const { return kind_; }

  /// Makes later work on `stream` wait for the batch. `lasts`: the stream is never destroyed.
  /// Returns false, and does nothing, if the stream is captured into a graph and the batch is not.
  /// Throws BackendError.
  [[nodiscard]] bool make_wait(StreamHandle stream, bool lasts) {
    if (settled() && kind_ != Kind::captured) return true;
    const std::lock_guard lock(mutex_);
    // All operations of a batch share the object, and most are waited for on one stream: the first
    // asks CUDA, the others do not.
    if (lasts && std::ranges::find(lasting_, stream) != lasting_.end()) return true;
    const DeviceGuard guard(*runtime_, device_);
    const std::uint64_t id = runtime_->stream_id(stream);
    if (std::ranges::find(waiting_, id) != waiting_.end()) return true;
    const bool captured = kind_ == Kind::captured;
    if (runtime_->is_capturing(stream) != captured) return captured;
    runtime_->wait(stream, event_.get());
    waiting_.push_back(id);
    if (lasts) lasting_.push_back(stream);
    return true;
  }

  /// Blocks the calling thread until the GPU is done with the batch. Throws BackendError.
  void block() const {
    if (kind_ == Kind::captured) return;
    const DeviceGuard guard(*runtime_, device_);
    runtime_->synchronize(event_.get());
  }

  /// True once the GPU is done, which has nothing to do for captured work. Throws BackendError.
  [[nodiscard]] bool is_done() const {
    return kind_ == Kind::captured || runtime_->is_done(event_.get());
  }

  /// The driver has noticed the end, or the session has failed with `error`.
  void settle(std::exception_ptr error) {
    error_ = std::move(error);
    // Release: pairs with the acquire in `settled`, after which other threads read the error.
    settled_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool settled() const { return settled_.load(std::memory_order_acquire); }
  /// Null if the batch succeeded. Valid once settled.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  int device_;
  Kind kind_;
  Event event_;
  std::atomic<bool> settled_{false};
  std::exception_ptr error_{};
  std::mutex mutex_{};
  std::vector<std::uint64_t> waiting_{};  // ids of the streams that wait already
  std::vector<StreamHandle> lasting_{};   // those of them that are never destroyed
};

}  // namespace kolo::internal::backend::gpu
