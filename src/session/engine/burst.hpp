// SPDX-License-Identifier: Apache-2.0
// The submissions of one thread that the driver is to find together (detail::SubmissionBurst).
#pragma once

#include <memory>
#include <optional>

#include "backend/gpu/runtime/gpu.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::session {

class Engine;

/// A burst costs one ring for the driver and one mark on the GPU, however many operations it has.
/// Used by its thread only.
class Burst {
 public:
  /// Becomes the burst of this thread, which has none. `stream` has computed the GPU tensors; empty
  /// for the stream that is current at each submission.
  explicit Burst(std::optional<detail::StreamInUse> stream) : stream_(stream) {
    of_this_thread() = this;
  }
  ~Burst() {
    of_this_thread() = nullptr;
    publish();
  }
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  /// Null if the thread is in no burst. A pointer without destructor, since exit handlers may still
  /// submit.
  [[nodiscard]] static Burst*& of_this_thread() {
    thread_local Burst* current = nullptr;
    return current;
  }

  /// The operation that `engine` queues next is found with the others.
  void add_to(const std::shared_ptr<Engine>& engine) {
    if (engine_ != nullptr && engine_ != engine) publish();
    engine_ = engine;
  }
  /// Makes visible what was submitted so far; later tensors get a new mark. A thread calls it
  /// before it waits: the driver cannot finish an operation that it does not see.
  void publish();

  [[nodiscard]] const std::optional<detail::StreamInUse>& stream() const { return stream_; }
  /// The mark of the burst's tensors on the GPU; null before the first.
  [[nodiscard]] std::shared_ptr<const backend::gpu::ReadyMark>& ready(const backend::gpu::Gpu& gpu,
                                                                      detail::StreamInUse stream) {
    if (gpu_ != &gpu || marked_ != stream.handle) ready_.reset();
    gpu_ = &gpu;
    marked_ = stream.handle;
    return ready_;
  }

 private:
  std::optional<detail::StreamInUse> stream_;
  std::shared_ptr<Engine> engine_{};  // where operations are queued that the driver does not see
  const backend::gpu::Gpu* gpu_ = nullptr;
  CUstream_st* marked_ = nullptr;
  std::shared_ptr<const backend::gpu::ReadyMark> ready_{};
};

}  // namespace kolo::internal::session
