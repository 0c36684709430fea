// A thread for calls that may block.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace kolo::backend::nccl {

/// Does one thing after the other. Started when there is a first. Thread-safe.
class Worker {
 public:
  /// How long the destructor waits for what is still to be done; then the thread is left behind
  /// with it, lest a call that never returns keeps the process.
  explicit Worker(std::chrono::nanoseconds patience = std::chrono::seconds(10));
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `work` throws nothing, and owns what it uses.
  void post(std::function<void()> work);

 private:
  struct Shared;

  std::chrono::nanoseconds patience_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace kolo::backend::nccl
