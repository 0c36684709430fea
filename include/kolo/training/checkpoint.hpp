// SPDX-License-Identifier: Apache-2.0
// Checkpoints, and the safetensors files that hold them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/training/best_metric.hpp"

namespace kolo {

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
  NamedStates parts{};             ///< Rank 0's parts, the same on all ranks.
  NamedStates per_rank{};          ///< This rank's parts; empty if `ranks` is not `kolo::size()`.
  std::filesystem::path path{};    ///< The file that rank 0 read.

  /// The part of this name. Throws CheckpointError, on this rank, if there is no such part.
  [[nodiscard]] KOLO_EXPORT const StateDict& part(const std::string& name) const;
  /// Like `part`, for a part in `per_rank`.
  [[nodiscard]] KOLO_EXPORT const StateDict& per_rank_part(const std::string& name) const;
};

struct CheckpointerOptions {
  std::filesystem::path directory{};  ///< On rank 0; relative to the working directory at
                                      ///< construction. Created by the first save.
  std::string prefix = "checkpoint";  ///< Files are named `<prefix>-<step>.safetensors`.
  int keep_last = 2;                  ///< Number of most recent checkpoints to keep; at least 1.
  bool keep_best = true;              ///< Also keep the checkpoint with the best metric.
  Goal best = Goal::minimum;          ///< Whether the lowest or the highest metric is best.
};

/// Optional contents of a checkpoint, in addition to the parts that all ranks share.
struct CheckpointExtras {
  std::optional<double> metric{};  ///< Rank 0's value is used. A NaN is never the best.
  NamedStates per_rank{};          ///< Parts that differ between ranks, such as the random state.
};

/// Saves and loads checkpoints. Only rank 0 accesses files. It writes under a temporary name,
/// flushes to the disk, and renames, so that a file with a checkpoint's name is always complete.
/// When loading, rank 0 sends the file's bytes to all ranks, and each rank verifies its checksums.
///
///     kolo::Checkpointer checkpoints({.directory = "run1", .best = kolo::Goal::maximum});
///     if (const auto found = checkpoints.load_latest()) {
///       kolo::load_state({{"weight", weight}}, found->part("model"));
///       sampler.load_state(found->part("sampler"));
///     }
///     ...
///     checkpoints.save(step,
///                      {{"model", kolo::StateDict({{"weight", weight}})},
///                       {"sampler", sampler.state()}},
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

  /// Writes a checkpoint of rank 0's `parts` and of the `per_rank` parts of all ranks. Replaces a
  /// checkpoint of the same step, and removes checkpoints that the options do not keep. Other ranks
  /// may leave `parts` empty. Returns the path on rank 0. Throws InvalidArgument, on this rank, for
  /// a negative step.
  KOLO_EXPORT std::filesystem::path save(std::int64_t step, const NamedStates& parts,
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

struct SafetensorsOptions {
  bool strict = true;    ///< Refuse missing and unexpected names.
  std::string prefix{};  ///< Use only names with this prefix, and remove the prefix.
};

/// The names that did not match; both lists are empty if `strict`.
struct UnmatchedNames {
  std::vector<std::string> missing{};     ///< Wanted, but not in the file.
  std::vector<std::string> unexpected{};  ///< In the file, but not wanted.
};

/// Copies a state into tensors in CPU memory. Throws InvalidArgument for a tensor of another shape
/// or dtype and, if `strict`, for missing and unexpected names; then no tensor is changed.
KOLO_EXPORT UnmatchedNames load_state(const TensorViews& into, const StateDict& state,
                                      const SafetensorsOptions& options = {});

/// Reads a safetensors file, or the files that an index (`*.index.json`) in the same folder lists.
/// The whole result is held in memory. If the file has the checksums that `Checkpointer` writes,
/// they are verified. Throws CheckpointError if the file is missing, damaged, of another format, or
/// has a dtype that Kolo lacks. Not collective; thread-safe.
[[nodiscard]] KOLO_EXPORT StateDict load_safetensors(const std::filesystem::path& path);
/// Reads the same files into tensors in CPU memory. Also throws the errors of `load_state`.
KOLO_EXPORT UnmatchedNames load_safetensors(const std::filesystem::path& path,
                                            const TensorViews& into,
                                            const SafetensorsOptions& options = {});

/// Writes a safetensors file of tensors in CPU memory. Writes under a temporary name, flushes to
/// disk, and renames, so that `path` always names a complete file. Several ranks may write the same
/// path: the last one to finish wins. A process that is killed may leave a file
/// "<path>.<16 hexadecimal digits>.part". Throws InvalidArgument for a tensor on a GPU and for
/// names or metadata that are not UTF-8, and CheckpointError if the system fails. Not collective;
/// thread-safe.
KOLO_EXPORT void save_safetensors(const std::filesystem::path& path,
                                  const ConstTensorViews& tensors, const Metadata& metadata = {});

}  // namespace kolo
