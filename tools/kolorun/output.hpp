// SPDX-License-Identifier: Apache-2.0
// What processes write, with their rank before each line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolorun {

/// To standard output or error. Does not wait for whoever reads.
void write_all(int to, std::string_view text);
/// When held streams are looked at again.
inline constexpr int retry_ms = 20;
/// Much of it is not written yet.
[[nodiscard]] bool is_full(int to);
/// Before the end of kolorun: until all is written, or a signal to end.
void flush_output();

/// Some could not be written, since a disk is full, say. A reader that has gone is no loss.
[[nodiscard]] bool has_lost_output();

/// Copies one stream of a process. Lines of several processes do not mix.
class TaggedStream {
 public:
  enum class Unit : std::uint8_t { line, any };

  /// `to`: kolorun's standard output or error. `any`: what comes is written at once, without tag.
  TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag,
               Unit unit = Unit::line);

  [[nodiscard]] int descriptor() const { return from_.get(); }
  /// Nothing is read while whoever reads kolorun's output is too slow.
  [[nodiscard]] bool is_held() const { return is_full(to_); }
  /// Reads what has come; false once the process has closed the stream. `all`: also if it is held.
  bool copy(bool all = false);
  /// Writes a last line that has no end.
  void finish();

 private:
  void write_lines();

  kolo::internal::node::FileDescriptor from_;
  int to_;
  std::string tag_;
  Unit unit_;
  std::string text_{};  // without an end so far
};

}  // namespace kolorun
