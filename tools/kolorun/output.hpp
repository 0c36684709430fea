// SPDX-License-Identifier: Apache-2.0
// What processes write, with their rank before each line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolorun {

/// Copies one stream of a process. Lines of several processes do not mix.
class TaggedStream {
 public:
  enum class Unit : std::uint8_t { line, any };

  /// `to`: kolorun's standard output or error. `any`: what comes is written at once, without tag.
  TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag,
               Unit unit = Unit::line);

  [[nodiscard]] int descriptor() const { return from_.get(); }
  /// Reads what has come; false once the process has closed the stream.
  bool copy();
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

/// Writes all of it, to a descriptor that may not take it at once.
void write_all(int to, std::string_view text);

}  // namespace kolorun
