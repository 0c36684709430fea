// SPDX-License-Identifier: Apache-2.0
// Writing to standard output and error, and to files, without waiting.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "node/file_descriptor.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

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

struct Destination;

/// A file that gets a copy of the output of a process.
class OutputFile {
 public:
  /// `path`: for messages.
  OutputFile(node::FileDescriptor file, const std::string& path);

  /// Does not wait for a slow file system.
  void add(std::string_view text) const;
  /// True if much output of all files is not written yet.
  [[nodiscard]] static bool is_full();

 private:
  std::shared_ptr<Destination> file_;
};

}  // namespace kolorun
