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

/// The file holds a whole array at any moment after construction, however the process ends. A kill
/// during a write would leave half an array, so there are two files, `path` and `path~`: each flush
/// writes into the second what it lacks, then the two exchange their names. If names cannot be
/// exchanged, there is one file, written in place. One thread at a time.
class TimelineFile {
 public:
  /// Makes the file, or empties it. Throws InvalidArgument.
  explicit TimelineFile(const std::string& path);
  ~TimelineFile();
  TimelineFile& operator=(TimelineFile&&) = delete;

  /// `event` is one JSON object.
  void add(std::string_view event);

  /// Writes what was added. After an error, which is kept, nothing is written any more.
  void flush();
  /// The last flush: there is one file from now on.
  void finish();
  [[nodiscard]] std::size_t buffered() const { return buffer_.size(); }

  /// What went wrong, or "".
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  struct File {
    int descriptor = -1;
    std::int64_t end = 0;  // of the events in it
  };

  void append(File& file, std::string_view events, bool last);
  void write(const File& file, std::string_view text, std::int64_t place);
  void give_up_second();

  std::string path_;
  std::string second_path_;
  File shown_{};   // at `path`
  File second_{};  // none: written in place
  bool any_ = false;
  std::string missed_{};  // what the second file lacks
  fmt::memory_buffer buffer_{};
  std::string error_{};
};

/// A piece of a timeline. What the members mean depends on the kind.
struct Span {
  enum class Kind : std::uint8_t {
    operation,    // from `begin` to `agreed` negotiated, then executed until `end`
    batch_begin,  // at `begin`
    phase,        // of a batch, `what`, from `begin` to `end`
    batch_end,    // at `end`
    instant,      // at `begin`, `text`
  };

  TimePoint begin{};
  TimePoint agreed{};
  TimePoint end{};
  std::uint64_t batch = no_batch;
  std::uint64_t count = 0;  // operations of a batch
  std::int64_t bytes = 0;
  std::shared_ptr<const std::string> text{};  // the operation's name; null: none
  const char* what = nullptr;                 // static
  std::uint32_t track = 0;
  std::uint32_t set = 0;
  Kind kind = Kind::instant;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;
  bool failed = false;
};

/// Tracks, which the format calls threads. Operations that share one never overlap.
inline constexpr std::uint32_t session_track = 1;
inline constexpr std::uint32_t dropped_track = 2;
inline constexpr std::uint32_t first_batch_track = 10;
inline constexpr std::uint32_t first_shared_track =
    1000;  // of operations without a track of their own
inline constexpr std::uint32_t first_named_track = 100000;

/// Names of operations are cut to so many bytes.
inline constexpr std::size_t max_text = 512;

/// Writes spans in the words of the format. Each track is named before its first event.
class TraceEvents {
 public:
  TraceEvents(TimelineFile& file, int rank);

  void add(const Span& span);
  /// That spans were dropped before `time`: so many in all.
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
