// The checkpoints in a directory. No communication.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kolo/training/checkpointer.hpp"

namespace kolo::detail {

class CheckpointDirectory {
 public:
  struct Entry {
    std::filesystem::path path;
    std::int64_t step = 0;           // from the file's name
    std::optional<double> metric{};  // from its header
  };

  explicit CheckpointDirectory(const CheckpointerOptions& options) : options_(options) {}

  /// Where the checkpoint of a step is or will be.
  [[nodiscard]] std::filesystem::path path_of(std::int64_t step) const;

  /// Makes it if need be. Throws CheckpointError.
  void make() const;

  /// What has a checkpoint's name, the newest first. Nothing is read; a missing directory is empty.
  /// Throws CheckpointError.
  [[nodiscard]] std::vector<Entry> by_step() const;

  /// Those with a good header and a metric, the best first, of equals the oldest first.
  [[nodiscard]] std::vector<Entry> by_metric() const;

  /// Removes what is not to be kept, and what interrupted writes have left. `saved`, the one
  /// written just now, is kept in any case; damaged files stay, and do not count. What cannot be
  /// removed is named in a warning.
  void prune(const std::filesystem::path& saved) const;

 private:
  [[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& path) const;
  [[nodiscard]] std::vector<Entry> with_good_headers() const;

  const CheckpointerOptions& options_;
};

}  // namespace kolo::detail
