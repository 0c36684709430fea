// SPDX-License-Identifier: Apache-2.0
// The output of processes, with the rank before each line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolorun {

/// Writes to standard output or error. Does not wait for a slow reader.
void write_all(int to, std::string_view text);
/// Interval at which held streams are checked again.
inline constexpr int retry_ms = 20;
/// True if much output is not written yet.
[[nodiscard]] bool is_full(int to);
/// Waits until all output is written, or a signal to end arrives. Called before kolorun ends.
void flush_output();

/// True if output could not be written, for example because a disk is full. A reader that is gone
/// is not a loss.
[[nodiscard]] bool has_lost_output();

/// The last lines that a process has written to a stream, for messages.
class LastLines {
 public:
  void add(std::string_view text);
  /// At most 20 lines and 4096 bytes, without the last line break.
  [[nodiscard]] std::string text() const;
  /// The last lines of a file; "" if it cannot be read.
  [[nodiscard]] static std::string of_file(const std::string& path);

 private:
  std::string text_{};
};

/// Copies one output stream of a process, so that lines of several processes do not mix.
class TaggedStream {
 public:
  enum class Unit : std::uint8_t { line, any };

  /// `to`: kolorun's standard output or error. `any`: data is written immediately and without a
  /// tag.
  TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag,
               Unit unit = Unit::line, std::shared_ptr<LastLines> last_lines = {});

  [[nodiscard]] int descriptor() const { return from_.get(); }
  /// True while the reader of kolorun's output is too slow; then nothing is read from the process.
  [[nodiscard]] bool is_held() const { return is_full(to_); }
  /// Copies the available data; false once the process has closed the stream. `all`: even if it is
  /// held.
  bool copy(bool all = false);
  /// Writes a last line without a line break.
  void finish();

 private:
  void write_lines();

  kolo::internal::node::FileDescriptor from_;
  int to_;
  std::string tag_;
  Unit unit_;
  std::shared_ptr<LastLines> last_lines_;
  std::string text_{};  // the last line, which is incomplete so far
};

}  // namespace kolorun
