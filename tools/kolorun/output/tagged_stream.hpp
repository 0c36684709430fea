// SPDX-License-Identifier: Apache-2.0
// The output of processes, with the rank before each line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"
#include "writing.hpp"

namespace kolorun {

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

  /// What becomes of the stream.
  struct Copies {
    int to;                            // kolorun's standard output or error
    bool is_shown = true;              // there
    std::string tag{};                 // before each line there
    Unit unit = Unit::line;            // `any`: data is written immediately and without a tag
    std::optional<OutputFile> file{};  // gets all of it, too
    std::shared_ptr<LastLines> last_lines{};
  };

  TaggedStream(kolo::internal::node::FileDescriptor from, Copies copies);

  [[nodiscard]] int descriptor() const { return from_.get(); }
  /// True while the reader of kolorun's output, or the disk, is too slow; then nothing is read from
  /// the process.
  [[nodiscard]] bool is_held() const {
    return (copies_.is_shown && is_full(copies_.to)) || (copies_.file && OutputFile::is_full());
  }
  /// Copies the available data; false once the process has closed the stream. `all`: even if it is
  /// held.
  bool copy(bool all = false);
  /// Writes a last line without a line break.
  void finish();

 private:
  void write_lines();

  kolo::internal::node::FileDescriptor from_;
  Copies copies_;
  std::string text_{};  // the last line, which is incomplete so far
};

}  // namespace kolorun
