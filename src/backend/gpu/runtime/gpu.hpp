// SPDX-License-Identifier: Apache-2.0
// The GPU of a rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/handles.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend::gpu {

/// Events of one device that wait to be recorded again, which costs a third of a new one.
/// Thread-safe.
class EventPool {
 public:
  explicit EventPool(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {
    free_.reserve(most);
  }

  /// The device is the current one. Throws BackendError, without the lock: if no handler catches
  /// the exception, nothing unlocks.
  [[nodiscard]] Event take() {
    if (Event event = take_free()) return event;
    return make_event(runtime_);
  }
  void give_back(Event event) noexcept {
    const std::lock_guard lock(mutex_);
    if (!closed_ && free_.size() < most) free_.push_back(std::move(event));
  }
  /// Destroys the events. Marks may outlive the GPU of their session.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    free_.clear();
  }

 private:
  static constexpr std::size_t most = 1024;

  [[nodiscard]] Event take_free() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    Event event = std::move(free_.back());
    free_.pop_back();
    return event;
  }

  std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_{};
  std::vector<Event> free_{};
  bool closed_ = false;
};

/// The point on the submitter's stream after which the memory of a tensor may be accessed.
class ReadyMark {
 public:
  ReadyMark(std::shared_ptr<EventPool> events, Event event, std::uint64_t stream,
            std::uint64_t number, std::optional<StreamHandle> lasting, bool captured)
      : events_(std::move(events)),
        event_(std::move(event)),
        stream_(stream),
        number_(number),
        lasting_(lasting),
        captured_(captured) {}
  /// A stream that waits for the event does so for the record that it had when it was told to wait.
  ~ReadyMark() { events_->give_back(std::move(event_)); }
  ReadyMark(const ReadyMark&) = delete;
  ReadyMark& operator=(const ReadyMark&) = delete;

  [[nodiscard]] EventHandle event() const { return event_.get(); }
  /// The id of the stream.
  [[nodiscard]] std::uint64_t stream() const { return stream_; }
  /// Later marks on a stream have larger numbers.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// The stream, if it is never destroyed.
  [[nodiscard]] std::optional<StreamHandle> lasting_stream() const { return lasting_; }
  /// True if the stream was being captured into a graph.
  [[nodiscard]] bool captured() const { return captured_; }

 private:
  std::shared_ptr<EventPool> events_;
  Event event_;
  std::uint64_t stream_;
  std::uint64_t number_;
  std::optional<StreamHandle> lasting_;
  bool captured_;
};

/// The GPU of a rank: the device of the first tensor. CUDA is not called before there is one.
class Gpu {
 public:
  explicit Gpu(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
  ~Gpu() { events_->close(); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Marks the current end of `stream`, on which a tensor is computed. `lasts`: the stream is never
  /// destroyed. Throws InvalidArgument if this device cannot be used or if another is already in
  /// use; BackendError if CUDA fails. Thread-safe.
  [[nodiscard]] std::shared_ptr<const ReadyMark> mark(Device device, StreamHandle stream,
                                                      bool lasts = false);

  // The driver calls the other functions, after the first mark, with this GPU as current device.

  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] const DeviceProperties& properties() const { return properties_; }
  [[nodiscard]] Versions versions() const { return versions_; }
  /// The stream for copies from tensors.
  [[nodiscard]] StreamHandle stream() const { return stream_.get(); }
  /// The stream for NCCL's work among these ranks, so that the work of several process sets
  /// overlaps. Made at the first call; if many lists of ranks have one, some share it. Ranks launch
  /// in the same order, so they need not share alike. Throws BackendError.
  [[nodiscard]] StreamHandle stream_of(const std::vector<int>& ranks);
  /// All streams of NCCL's work that no graph can have captured.
  [[nodiscard]] std::vector<StreamHandle> nccl_streams() const;
  /// The stream that captures join, and their warm-up.
  [[nodiscard]] StreamHandle graph_stream() const { return graph_stream_.get(); }
  /// The stream for copies back from the host, which need not wait for other tensors.
  [[nodiscard]] StreamHandle return_stream() const { return return_stream_.get(); }

  /// Waits until all launched work is done, at most for `timeout`.
  void finish(std::chrono::nanoseconds timeout);

  /// Makes later work on `stream` wait until all tensors may be accessed.
  void await(std::span<const BatchTensor* const> tensors, StreamHandle stream);

  /// Leaks the memory, whose release would wait for a GPU that is busy forever, and the streams,
  /// which a thread that was left behind may still use. Must be the last call.
  void leak() {
    pinned_blocks_.leak();
    for (Stream& stream : nccl_streams_) static_cast<void>(stream.release());
    static_cast<void>(stream_.release());
    static_cast<void>(graph_stream_.release());
    static_cast<void>(return_stream_.release());
  }

  [[nodiscard]] BlockPool& pinned_blocks() { return pinned_blocks_; }

 private:
  void open(int index);

  std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_;  // guards the members that `mark` changes
  int index_ = -1;
  std::uint64_t marks_ = 0;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>(runtime_);
  Versions versions_{};
  DeviceProperties properties_{};
  BlockPool pinned_blocks_{runtime_};
  Stream stream_{};
  static constexpr std::size_t max_nccl_streams = 16;
  std::vector<Stream> nccl_streams_{};
  std::map<std::vector<int>, StreamHandle> stream_by_ranks_{};
  Stream graph_stream_{};
  Stream return_stream_{};
};

/// Collects segments, to launch them together.
class TransferLaunch {
 public:
  /// Ignores empty segments.
  void add(const Segment& segment) {
    if (segment.elements > 0) segments_.push_back(segment);
  }
  void launch(Gpu& gpu, StreamHandle stream) const { gpu.runtime()->launch(segments_, stream); }

 private:
  std::vector<Segment> segments_{};
};

}  // namespace kolo::internal::backend::gpu
