// A timeline while it is written: by a thread of its own, so that no step waits for a file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "diagnostics/span_queue.hpp"
#include "diagnostics/timeline_file.hpp"

namespace kolo::diagnostics {

class Timeline {
 public:
  static constexpr std::size_t default_capacity = std::size_t{1} << 15;

  /// Throws InvalidArgument if the file cannot be made. `capacity` is a power of two.
  Timeline(const std::string& path, int rank, std::size_t capacity = default_capacity);
  /// Closes it.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// By the driver. Never waits: what there is no room for is dropped, but the end of a batch whose
  /// beginning was taken is always taken. False if it was dropped.
  bool push(Span span);

  /// Writes what was pushed, and ends the thread. What went wrong, or "".
  std::string close();

  /// So many spans were dropped.
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

}  // namespace kolo::diagnostics
