// SPDX-License-Identifier: Apache-2.0
// The checkpoints in a directory: one folder for each. Does not communicate with other ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/checkpoint_header.hpp"

namespace kolo::internal {

class CheckpointDirectory {
 public:
  struct Entry {
    std::filesystem::path path;
    std::int64_t step = 0;           // from the folder's name
    std::uint32_t serial = 0;        // from the index
    std::optional<double> metric{};  // from the index
  };

  explicit CheckpointDirectory(CheckpointerOptions options) : options_(std::move(options)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return options_.directory; }
  /// The path of a step's checkpoint, whether it exists or not.
  [[nodiscard]] std::filesystem::path path_of(std::int64_t step) const;

  /// Makes an empty folder for a new checkpoint, under a name that no other save uses. Creates the
  /// directory unless it exists, and removes what interrupted saves have left. Throws
  /// CheckpointError.
  [[nodiscard]] std::filesystem::path begin(std::int64_t step) const;

  /// Makes the folder from `begin`, whose files are complete, the checkpoint of its step, in place
  /// of an earlier one, and gives it the next serial number. Then removes the checkpoints that the
  /// options do not keep; damaged ones stay and do not count. A warning names what cannot be
  /// removed. Throws CheckpointError.
  void publish(const std::filesystem::path& folder, const CheckpointHeader& header) const;

  /// Removes the folder from `begin`.
  static void give_up(const std::filesystem::path& folder);

  /// The folders with a checkpoint's name, from the newest save to the oldest. Those with a damaged
  /// index, whose age is unknown, come first, so that loading reports them. A missing directory
  /// counts as empty. Throws CheckpointError.
  [[nodiscard]] std::vector<Entry> by_age() const;

  /// The checkpoints with a valid index and a metric, from the best to the worst, and from the
  /// oldest to the newest where metrics are equal.
  [[nodiscard]] std::vector<Entry> by_metric() const;

 private:
  [[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& path) const;
  [[nodiscard]] std::vector<Entry> by_step() const;
  /// The checkpoints with a valid index, from the newest save to the oldest.
  [[nodiscard]] std::vector<Entry> with_good_headers() const;
  static bool read_header_of(Entry& entry);
  /// A serial number that is higher than all in the directory.
  [[nodiscard]] std::uint32_t next_serial() const;
  void remove_unfinished() const;
  void prune(const std::filesystem::path& saved) const;

  CheckpointerOptions options_;
};

}  // namespace kolo::internal
