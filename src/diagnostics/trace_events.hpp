// Spans in the words of the trace format.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "diagnostics/span_queue.hpp"
#include "diagnostics/timeline_file.hpp"

namespace kolo::diagnostics {

/// Tracks, which the format calls threads. Operations that share one never overlap.
inline constexpr std::uint32_t session_track = 1;
inline constexpr std::uint32_t dropped_track = 2;
inline constexpr std::uint32_t first_batch_track = 10;
inline constexpr std::uint32_t first_shared_track =
    1000;  // of operations without a track of their own
inline constexpr std::uint32_t first_named_track = 100000;

/// Names of operations are cut to so many bytes.
inline constexpr std::size_t most_text = 512;

/// Each track is named before its first event.
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

}  // namespace kolo::diagnostics
