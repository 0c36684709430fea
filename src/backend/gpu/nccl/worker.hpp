// SPDX-License-Identifier: Apache-2.0
// A thread for calls that may block.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace kolo::internal::backend::nccl {

/// A thread that makes blocking calls one after another. The first `post` starts it. Thread-safe.
class Worker {
 public:
  Worker();
  /// Detaches the thread unless it was stopped.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `work` must not throw, and owns all objects that it uses.
  void post(std::function<void()> work);

  /// Waits up to `patience` for posted calls. If a call does not return, its thread is left behind,
  /// so that it does not keep the process from ending, and the result is false. Must be the last
  /// call.
  [[nodiscard]] bool stop(std::chrono::nanoseconds patience);

  /// A function that waits until the thread has nothing to do, up to `patience`, and returns
  /// whether that is so. It may outlive the worker.
  [[nodiscard]] std::function<bool()> idle_within(std::chrono::nanoseconds patience) const;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
};

}  // namespace kolo::internal::backend::nccl
