// SPDX-License-Identifier: Apache-2.0
// Checkpoints: rank 0 writes and reads the files; all ranks receive the contents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/training/learning_rate.hpp"

namespace kolo {

/// Bytes by name: the saved parts of a training run.
using Blobs = std::map<std::string, std::string>;

/// Why a checkpoint cannot be used.
enum class CheckpointFault : std::uint8_t {
  missing,     ///< There is no such file.
  truncated,   ///< The file is shorter than its header states.
  corrupt,     ///< A checksum is wrong, or the file is longer than its header states.
  foreign,     ///< The file is not a checkpoint, or its version is unknown to this library.
  incomplete,  ///< The checkpoint has no part of the requested name.
  io,          ///< The system failed to read or write; the message has the reason.
};

/// A checkpoint that cannot be read or written. The message names the file.
class KOLO_EXPORT CheckpointError : public Error {
 public:
  CheckpointError(CheckpointFault fault, std::filesystem::path path, const std::string& message)
      : Error(message), fault_(fault), path_(std::move(path)) {}

  [[nodiscard]] CheckpointFault fault() const noexcept { return fault_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  CheckpointFault fault_;
  std::filesystem::path path_;
};

/// The contents of a checkpoint.
struct Checkpoint {
  std::int64_t step = 0;           ///< Training step.
  std::optional<double> metric{};  ///< Determines the best checkpoint.
  int ranks = 0;                   ///< Number of ranks of the session that saved it.
  Blobs parts{};                   ///< Rank 0's parts, the same on all ranks.
  Blobs own{};                   ///< This rank's own parts; empty if `ranks` is not `kolo::size()`.
  std::filesystem::path path{};  ///< The file that rank 0 read.

  /// The part of this name. Throws CheckpointError, on this rank, if there is no such part.
  [[nodiscard]] KOLO_EXPORT const std::string& part(const std::string& name) const;
  /// As `part`, for this rank's own parts.
  [[nodiscard]] KOLO_EXPORT const std::string& own_part(const std::string& name) const;
};

struct CheckpointerOptions {
  std::filesystem::path directory{};  ///< On rank 0. Created when the first checkpoint is saved.
  std::string prefix = "checkpoint";  ///< Files are named `<prefix>-<step>.safetensors`.
  int keep_last = 2;                  ///< Number of most recent checkpoints to keep; at least 1.
  bool keep_best = true;              ///< Also keep the checkpoint with the best metric.
  Goal best = Goal::minimum;          ///< Whether the lowest or the highest metric is best.
};

/// Optional contents of a checkpoint, in addition to the parts that all ranks share.
struct CheckpointExtras {
  std::optional<double> metric{};  ///< Rank 0's value is used. A NaN is never the best.
  Blobs own{};                     ///< Parts that differ between ranks, such as the random state.
};

/// Saves and loads checkpoints. Only rank 0 accesses files. It writes under a temporary name,
/// flushes to the disk, and renames, so that a file with a checkpoint's name is always complete.
/// When loading, rank 0 sends the contents to all ranks, and each rank verifies a checksum.
///
///     kolo::Checkpointer checkpoints({.directory = "run1", .best = kolo::Goal::maximum});
///     if (const auto found = checkpoints.load_latest()) model.load(found->part("model"));
///     ...
///     checkpoints.save(step, {{"model", model.bytes()}, {"sampler", sampler.state()}},
///                      {.metric = accuracy});
///
/// Saving and loading are collectives of the world: all ranks call these functions in the same
/// order. A failure on rank 0 throws CheckpointError on every rank; no partial file remains, and
/// the session stays usable. A whole checkpoint is held in memory. Not thread-safe.
class Checkpointer {
 public:
  /// Local. Throws InvalidArgument, on this rank, for an empty directory, a prefix that is empty or
  /// contains a slash, or a `keep_last` below 1.
  KOLO_EXPORT explicit Checkpointer(CheckpointerOptions options);

  /// Writes a checkpoint of rank 0's `parts` and every rank's own parts. Replaces a checkpoint of
  /// the same step, and removes checkpoints that the options do not keep. Other ranks may leave
  /// `parts` empty. Returns the path on rank 0. Throws InvalidArgument, on this rank, for a
  /// negative step.
  KOLO_EXPORT std::filesystem::path save(std::int64_t step, const Blobs& parts,
                                         const CheckpointExtras& extras = {});

  /// Loads the most recently saved undamaged checkpoint; `std::nullopt` if there is none. The order
  /// of saves counts, not the step, which may be lower after a return to an older checkpoint. Skips
  /// damaged files with a warning on rank 0 and leaves them in place.
  [[nodiscard]] KOLO_EXPORT std::optional<Checkpoint> load_latest() const;
  /// As `load_latest`, for the checkpoint with the best metric; among equals, the oldest.
  [[nodiscard]] KOLO_EXPORT std::optional<Checkpoint> load_best() const;
  /// The path of the checkpoint that `load_latest` would load.
  [[nodiscard]] KOLO_EXPORT std::optional<std::filesystem::path> latest() const;

  /// Loads the checkpoint at rank 0's `path`. Throws CheckpointError on every rank if the file is
  /// missing, damaged or not a checkpoint, or cannot be read.
  [[nodiscard]] KOLO_EXPORT static Checkpoint load(const std::filesystem::path& path);

 private:
  CheckpointerOptions options_;
};

}  // namespace kolo
