// SPDX-License-Identifier: Apache-2.0
// Prepares items, such as the next batches, ahead of use on other threads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace kolo {

/// Options of BackgroundLoader.
struct BackgroundLoaderOptions {
  int threads = 1;           ///< Number of threads; 0: `next` makes items on the calling thread.
  std::size_t capacity = 4;  ///< Maximum number of items made ahead; at least 1.
};

/// Makes items 0 to `count` - 1 by calling `make(number)` on its own threads, at most `capacity`
/// items ahead, and returns them in order:
///
///     kolo::BackgroundLoader<Batch> batches(steps, [&](std::int64_t step) { return ...; });
///     while (auto batch = batches.next()) train_on(*batch);
///
/// `make` is called once per number; with several threads it must be safe to call concurrently. It
/// must not call collectives. If `make` throws, `next` rethrows the exception in place of that
/// item; later items remain available. Call `next` from one thread at a time. The destructor waits
/// for calls of `make` that have begun and starts no others.
template <typename T>
class BackgroundLoader {
 public:
  using Make = std::function<T(std::int64_t)>;

  BackgroundLoader(std::int64_t count, Make make, const BackgroundLoaderOptions& options = {})
      : make_(std::move(make)),
        count_(count),
        capacity_(static_cast<std::int64_t>(
            std::clamp<std::uint64_t>(options.capacity, 1, std::numeric_limits<int>::max()))) {
    try {
      for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {  // a thread could not be created: join those that were
      stop();
      throw;
    }
  }
  BackgroundLoader(const BackgroundLoader&) = delete;
  BackgroundLoader& operator=(const BackgroundLoader&) = delete;
  ~BackgroundLoader() { stop(); }

  /// Waits for the next item and returns it; `std::nullopt` after the last.
  [[nodiscard]] std::optional<T> next() {
    if (taken_ >= count_) return std::nullopt;
    if (threads_.empty()) return make_(taken_++);
    Item item = take();
    room_.notify_one();
    if (item.failure) std::rethrow_exception(item.failure);
    return std::move(item.value);
  }

 private:
  struct Item {
    std::optional<T> value{};
    std::exception_ptr failure{};
  };

  Item take() {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [this] { return ready_.contains(taken_); });
    return std::move(ready_.extract(taken_++).mapped());
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock,
                 [this] { return stopping_ || begun_ >= count_ || begun_ < taken_ + capacity_; });
      if (stopping_ || begun_ >= count_) return;
      const std::int64_t number = begun_++;
      lock.unlock();
      Item item = made(number);
      lock.lock();
      ready_.emplace(number, std::move(item));
      made_.notify_one();
    }
  }

  Item made(std::int64_t number) {
    try {
      return {.value = make_(number)};
    } catch (...) {
      return {.failure = std::current_exception()};
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const Make make_;
  const std::int64_t count_;
  const std::int64_t capacity_;
  std::mutex mutex_;
  std::condition_variable made_;
  std::condition_variable room_;
  std::map<std::int64_t, Item> ready_;  // made but not taken; threads may finish out of order
  std::int64_t begun_ = 0;              // the next number to make
  std::int64_t taken_ = 0;              // the next number to return
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kolo
