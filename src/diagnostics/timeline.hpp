// SPDX-License-Identifier: Apache-2.0
// A timeline under construction, and the tracks on which it shows operations and batches. A thread
// of its own writes it, so that no step waits for a file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "diagnostics/names.hpp"
#include "diagnostics/timeline_file.hpp"

namespace kolo::internal::diagnostics {

/// A lock-free queue between one thread that pushes and one that takes. If it is full, spans are
/// dropped and counted.
class SpanQueue {
 public:
  /// `capacity` is a power of two.
  explicit SpanQueue(std::size_t capacity) : spans_(capacity), mask_(capacity - 1) {}

  /// Returns false if the span was dropped. `reserve` is the number of places to leave free for
  /// later spans that must not be dropped.
  bool push(Span span, std::size_t reserve) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);  // only this thread writes it
    // Acquire pairs with the release in `take`: the place of a span is written again only after the
    // reader is done with it.
    const std::size_t used = tail - head_.load(std::memory_order_acquire);
    if (used + reserve >= spans_.size()) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return false;
    }
    spans_[tail & mask_] = std::move(span);
    tail_.store(tail + 1, std::memory_order_release);  // publishes the span
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
  // Separate cache lines: the two threads write these for every span.
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

class Timeline {
 public:
  static constexpr std::size_t default_capacity = std::size_t{1} << 15;

  /// Throws InvalidArgument if the file cannot be created. `capacity` is a power of two.
  Timeline(const std::string& path, int rank, std::size_t capacity = default_capacity);
  /// Calls `close`.
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

/// Gives out the lowest number that is free.
class TrackPool {
 public:
  [[nodiscard]] std::uint32_t take();
  void give_back(std::uint32_t track) { taken_[track] = false; }
  void clear() { taken_.clear(); }

 private:
  std::vector<bool> taken_{};
};

/// The current timeline and its tracks: one for each of the first names, and pools of tracks for
/// all other operations and for batches. Called by the driver only. `begin_operation` and
/// `end_operation` need a timeline; without one, the other functions do nothing.
class TimelineTracks {
 public:
  /// Null: no timeline.
  void set(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  /// `entry` is the entry of the operation's name; `named`: the name is not empty.
  void begin_operation(Tag& tag, Names::Entry& entry, bool named);
  /// `batch` may be `no_batch`.
  void end_operation(const Tag& tag, const Names::Entry& entry, std::uint64_t batch,
                     const BatchTimes& times, bool failed);

  /// Returns the track of the batch; 0 if the batch is not shown.
  [[nodiscard]] std::uint32_t begin_batch(const StartedBatch& batch, TimePoint now);
  /// `name` is static.
  void add_phase(std::uint32_t track, const char* name, TimePoint begin, TimePoint end);
  void end_batch(std::uint32_t track, TimePoint now);

  void add_note(EventKind kind, const std::string& text, TimePoint now);

 private:
  std::shared_ptr<Timeline> timeline_{};
  std::uint32_t number_ = 0;  // the timelines so far
  std::uint32_t named_tracks_ = 0;
  TrackPool shared_tracks_{};
  TrackPool batch_tracks_{};
};

/// `path` with each `%r` replaced by the rank. "" if this rank writes no file: without `%r`, only
/// rank 0 does.
[[nodiscard]] std::string path_of_rank(const std::string& path, int rank);

/// Opens this rank's timeline; null if the rank writes none. Throws InvalidArgument.
[[nodiscard]] std::shared_ptr<Timeline> open_timeline(const std::string& path, int rank);

/// `path` with the session's number inserted before the extension.
[[nodiscard]] std::string path_of_session(const std::string& path, std::uint64_t number);

}  // namespace kolo::internal::diagnostics
