// SPDX-License-Identifier: Apache-2.0
// A file that is read in pieces, long after it was opened.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "training/safetensors/disk_file.hpp"

namespace kolo::internal {

/// Thread-safe.
class FileSource {
 public:
  /// Unless `keeps_open`, opens the file for each read, so that sets of many files need few
  /// descriptors.
  FileSource(File file, bool keeps_open) : first_(std::move(file)), keeps_open_(keeps_open) {
    if (!keeps_open_) first_.close();
  }

  /// Throws CheckpointError, also if the file is no longer the one that was opened.
  void read(std::uint64_t offset, std::span<char> into) {
    if (keeps_open_) return first_.read_at(offset, into.data(), into.size());
    File again = open_to_read(first_.path(), first_.kind());
    if (!again.is_same_as(first_))
      again.refuse(CheckpointFault::corrupt, "was replaced while it was being read");
    again.read_at(offset, into.data(), into.size());
  }

 private:
  File first_;
  bool keeps_open_;
};

}  // namespace kolo::internal
