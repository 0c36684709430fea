// SPDX-License-Identifier: Apache-2.0
// The checkpoints in a directory. Does not communicate with other ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

class CheckpointDirectory {
 public:
  struct Entry {
    std::filesystem::path path;
    std::int64_t step = 0;           // from the file's name
    std::uint32_t serial = 0;        // from the file's header
    std::optional<double> metric{};  // from the file's header
  };

  explicit CheckpointDirectory(const CheckpointerOptions& options) : options_(options) {}

  /// The path of a step's checkpoint, whether it exists or not.
  [[nodiscard]] std::filesystem::path path_of(std::int64_t step) const;

  /// Creates the directory unless it exists. Throws CheckpointError.
  void make() const;

  /// The serial number for the next checkpoint, higher than all in the directory. Throws
  /// CheckpointError.
  [[nodiscard]] std::uint32_t next_serial() const;

  /// The files with a checkpoint's name, from the newest save to the oldest. Files with a damaged
  /// header, whose age is unknown, come first, so that loading reports them. A missing directory
  /// counts as empty. Throws CheckpointError.
  [[nodiscard]] std::vector<Entry> by_age() const;

  /// The checkpoints with a valid header and a metric, from the best to the worst, and from the
  /// oldest to the newest where metrics are equal.
  [[nodiscard]] std::vector<Entry> by_metric() const;

  /// Removes the files that interrupted writes have left. A warning names a file that cannot be
  /// removed.
  void remove_unfinished() const;

  /// Removes the checkpoints that the options do not keep. Always keeps `saved`, the checkpoint
  /// just written. Damaged files stay and do not count. A warning names a file that cannot be
  /// removed.
  void prune(const std::filesystem::path& saved) const;

 private:
  [[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& path) const;
  [[nodiscard]] std::vector<Entry> by_step() const;
  /// The checkpoints with a valid header, from the newest save to the oldest.
  [[nodiscard]] std::vector<Entry> with_good_headers() const;
  static bool read_header_of(Entry& entry);

  const CheckpointerOptions& options_;
};

}  // namespace kolo::internal
