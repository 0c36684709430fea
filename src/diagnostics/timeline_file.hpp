// SPDX-License-Identifier: Apache-2.0
// The file of a timeline, in the trace format of Chrome and Perfetto: a JSON array of events.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "diagnostics/event.hpp"

namespace kolo::internal::diagnostics {

/// The file of a timeline. After construction it holds a complete JSON array at any moment, however
/// the process ends. A kill during a write would leave half an array, so there are two files,
/// `path` and `path~`: each flush brings the second file up to date, then the two exchange their
/// names. If names cannot be exchanged, there is only one file, written in place. One thread at a
/// time.
class TimelineFile {
 public:
  /// Creates or empties the file. Throws InvalidArgument.
  explicit TimelineFile(const std::string& path);
  ~TimelineFile();
  TimelineFile& operator=(TimelineFile&&) = delete;

  /// `event` is one JSON object.
  void add(std::string_view event);

  /// Writes the events added so far. After an error, which is kept, nothing more is written.
  void flush();
  /// Flushes for the last time and removes the second file.
  void finish();
  [[nodiscard]] std::size_t buffered() const { return buffer_.size(); }

  /// The first error, or "".
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  struct File {
    int descriptor = -1;
    std::int64_t end = 0;  // the offset behind the last event
  };

  void append(File& file, std::string_view events, bool last);
  void write(const File& file, std::string_view text, std::int64_t place);
  void give_up_second();

  std::string path_;
  std::string second_path_;
  File shown_{};   // the file at `path`
  File second_{};  // no descriptor: events are written in place
  bool any_ = false;
  std::string missed_{};  // events that the second file lacks
  fmt::memory_buffer buffer_{};
  std::string error_{};
};

/// An entry of a timeline. The kind determines the meaning of the other members.
struct Span {
  enum class Kind : std::uint8_t {
    operation,    // negotiated from `begin` to `agreed`, then executed until `end`
    batch_begin,  // at `begin`
    phase,        // the phase `what` of a batch, from `begin` to `end`
    batch_end,    // at `end`
    instant,      // an event of the session at `begin`, with `text`
  };

  TimePoint begin{};
  TimePoint agreed{};
  TimePoint end{};
  std::uint64_t batch = no_batch;
  std::uint64_t count = 0;  // the number of operations of a batch
  std::int64_t bytes = 0;
  std::shared_ptr<const std::string> text{};  // the name of an operation; null: none
  const char* what = nullptr;                 // a string literal
  std::uint32_t track = 0;
  std::uint32_t set = 0;
  Kind kind = Kind::instant;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;
  bool failed = false;
};

/// Numbers of tracks, which the format calls threads. Operations on one track never overlap. Named
/// tracks belong to one name; unnamed operations, and names beyond a limit, use the shared tracks.
inline constexpr std::uint32_t session_track = 1;
inline constexpr std::uint32_t dropped_track = 2;
inline constexpr std::uint32_t first_batch_track = 10;
inline constexpr std::uint32_t first_shared_track = 1000;
inline constexpr std::uint32_t first_named_track = 100000;

/// Longer names of operations are cut.
inline constexpr std::size_t max_text = 512;

/// Writes spans as events of the format. Each track is named before its first event.
class TraceEvents {
 public:
  TraceEvents(TimelineFile& file, int rank);

  void add(const Span& span);
  /// Notes at `time` that `dropped` spans have been dropped so far.
  void add_dropped(TimePoint time, std::uint64_t dropped);

 private:
  void name_track(const Span& span);
  void add_operation(const Span& span);
  void add_event(const char* phase, std::uint32_t track, TimePoint time, std::string_view rest);

  TimelineFile& file_;
  int rank_;
  std::unordered_set<std::uint32_t> named_{};
  fmt::memory_buffer line_{};
};

}  // namespace kolo::internal::diagnostics
