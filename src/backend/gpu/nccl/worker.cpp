// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/worker.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace kolo::internal::backend::nccl {

struct Worker::Shared {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<std::function<void()>> work{};
  std::thread thread{};
  bool busy = false;
  bool stopping = false;
  bool stopped = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !work.empty(); });
      if (work.empty()) break;
      std::function<void()> next = std::move(work.front());
      work.pop_front();
      busy = true;
      lock.unlock();
      next();
      next = nullptr;  // what it owns is destroyed without the lock
      lock.lock();
      busy = false;
      changed.notify_all();
    }
    stopped = true;
    changed.notify_all();
  }
};

Worker::Worker() : shared_(std::make_shared<Shared>()) {}

Worker::~Worker() {
  if (shared_->thread.joinable()) shared_->thread.detach();
}

bool Worker::stop(std::chrono::nanoseconds patience) {
  if (!shared_->thread.joinable()) return true;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool stopped =
      shared_->changed.wait_for(lock, patience, [this] { return shared_->stopped; });
  // A thread that has not stopped is detached by the destructor, and must begin nothing more.
  std::deque<std::function<void()>> dropped;
  if (!stopped) dropped.swap(shared_->work);
  lock.unlock();
  if (stopped) shared_->thread.join();
  return stopped;
}

void Worker::post(std::function<void()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.push_back(std::move(work));
  if (!shared_->thread.joinable())
    // The thread shares the ownership of its state, since it may outlive the worker.
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  shared_->changed.notify_all();
}

std::function<bool()> Worker::idle_within(std::chrono::nanoseconds patience) const {
  return [shared = shared_, patience] {
    std::unique_lock lock(shared->mutex);
    return shared->changed.wait_for(lock, patience,
                                    [&] { return !shared->busy && shared->work.empty(); });
  };
}

}  // namespace kolo::internal::backend::nccl
