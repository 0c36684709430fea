#include "backend/nccl/worker.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.hpp"

namespace kolo::backend::nccl {

struct Worker::Shared {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<std::function<void()>> work{};
  std::thread thread{};
  bool stopping = false;
  bool stopped = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !work.empty(); });
      if (work.empty()) break;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
    stopped = true;
    changed.notify_all();
  }
};

Worker::Worker(std::chrono::nanoseconds patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {}

Worker::~Worker() {
  if (!shared_->thread.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool stopped =
      shared_->changed.wait_for(lock, patience_, [this] { return shared_->stopped; });
  lock.unlock();
  if (stopped) {
    shared_->thread.join();
    return;
  }
  log(LogLevel::warning, "NCCL does not return from a call; its thread is left behind");
  shared_->thread.detach();
}

void Worker::post(std::function<void()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.push_back(std::move(work));
  if (!shared_->thread.joinable())
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  shared_->changed.notify_all();
}

}  // namespace kolo::backend::nccl
