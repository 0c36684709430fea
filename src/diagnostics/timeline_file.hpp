// A file in the trace format of Chrome and Perfetto: a JSON array of events.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kolo::diagnostics {

/// Whoever opens the file finds a whole array, at any moment once this is made, and however the
/// process ends. A write that a kill interrupts would leave half of one: so there are two files,
/// `path` and `path~`; each flush goes into the second, with what it missed, and then the two
/// exchange their names. Where names cannot be exchanged there is one, written in place. One thread
/// at a time.
class TimelineFile {
 public:
  /// Makes the file, or empties it. Throws InvalidArgument.
  explicit TimelineFile(const std::string& path);
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

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

}  // namespace kolo::diagnostics
