// SPDX-License-Identifier: Apache-2.0
// A timeline while it is written: by a thread of its own, so that no step waits for a file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "diagnostics/timeline_file.hpp"

namespace kolo::internal::diagnostics {

/// One thread pushes and one takes. When it is full, spans are dropped and counted.
class SpanQueue {
 public:
  /// `capacity` is a power of two.
  explicit SpanQueue(std::size_t capacity) : spans_(capacity), mask_(capacity - 1) {}

  /// False if it was dropped. `reserve`: room for so many more that are sure to come.
  bool push(Span span, std::size_t reserve) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);  // only this thread writes it
    // Acquire: the place behind `head_` is written again only once the reader is done with it.
    const std::size_t used = tail - head_.load(std::memory_order_acquire);
    if (used + reserve >= spans_.size()) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return false;
    }
    spans_[tail & mask_] = std::move(span);
    tail_.store(tail + 1, std::memory_order_release);  // with it the reader sees the span
    return true;
  }

  /// Calls `use(span)` for each span in the queue.
  template <typename Use>
  void take(Use use) {
    const std::size_t tail = tail_.load(std::memory_order_acquire);
    std::size_t head = head_.load(std::memory_order_relaxed);
    for (; head != tail; ++head) {
      use(std::as_const(spans_[head & mask_]));
      spans_[head & mask_].text.reset();
      head_.store(head + 1, std::memory_order_release);
    }
  }

  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::vector<Span> spans_;
  std::size_t mask_;
  // On cache lines of their own: each is written by another thread, for every span.
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

class Timeline {
 public:
  static constexpr std::size_t default_capacity = std::size_t{1} << 15;

  /// Throws InvalidArgument if the file cannot be made. `capacity` is a power of two.
  Timeline(const std::string& path, int rank, std::size_t capacity = default_capacity);
  /// Closes it.
  ~Timeline();
  Timeline& operator=(Timeline&&) = delete;

  /// Called by the driver. Never waits: if the queue is full, the span is dropped, and the result
  /// is false. The end of a batch is never dropped if its beginning was accepted.
  bool push(Span span);

  /// Writes all pushed spans and ends the thread. Returns an error message, or "".
  std::string close();

  /// The number of dropped spans.
  [[nodiscard]] std::uint64_t dropped() const { return queue_.dropped(); }

 private:
  void write(int rank);

  SpanQueue queue_;
  TimelineFile file_;
  std::size_t open_batches_ = 0;
  std::mutex mutex_{};
  std::condition_variable stopped_{};
  bool stopping_ = false;
  std::thread thread_;
};

/// `path` with the rank in place of each `%r`. "" if this rank is to write nothing: there is none,
/// and it is not rank 0.
[[nodiscard]] std::string path_of_rank(const std::string& path, int rank);

/// Of this rank; null if it is to write nothing. Throws InvalidArgument.
[[nodiscard]] std::shared_ptr<Timeline> open_timeline(const std::string& path, int rank);

/// `path` for one session of several, with its number before the extension.
[[nodiscard]] std::string path_of_session(const std::string& path, std::uint64_t number);

}  // namespace kolo::internal::diagnostics
