// SPDX-License-Identifier: Apache-2.0
// Checkpoints, and the safetensors files that hold them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/training/best_metric.hpp"

namespace kolo {

namespace internal {
struct DeferredSave;
}

/// Why a checkpoint cannot be used.
enum class CheckpointFault : std::uint8_t {
  missing,     ///< There is no such file, or a checkpoint lacks one of its files.
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

/// A checkpoint that was found. Its parts are read from the files when they are used: `load_state`
/// reads one tensor after the other into the program's memory. That throws CheckpointError, on this
/// rank, if a file can no longer be read; earlier tensors are then overwritten. A part may outlive
/// this object. A later save may remove the files of an old checkpoint: load before you save.
struct Checkpoint {
  std::int64_t step = 0;           ///< Training step.
  std::optional<double> metric{};  ///< Determines the best checkpoint.
  int ranks = 0;                   ///< Number of ranks of the session that saved it.
  NamedViews parts{};              ///< The shared parts, the same on all ranks.
  NamedViews per_rank{};           ///< This rank's parts; empty if `ranks` is not `kolo::size()`.
  std::vector<NamedViews> of_ranks{};  ///< The per-rank parts of all ranks that saved it.
  std::filesystem::path path{};        ///< Its folder, or the file that is a whole checkpoint.

  /// The part of this name. Throws CheckpointError, on this rank, if there is no such part.
  [[nodiscard]] KOLO_EXPORT const StateView& part(const std::string& name) const;
  /// Like `part`, for a part in `per_rank`.
  [[nodiscard]] KOLO_EXPORT const StateView& per_rank_part(const std::string& name) const;
  /// The per-rank parts of this name of all ranks that saved one, in the order of the ranks. Throws
  /// CheckpointError, on this rank, if there is none.
  [[nodiscard]] KOLO_EXPORT std::vector<StateView> per_rank_parts(const std::string& name) const;
};

struct CheckpointerOptions {
  std::filesystem::path directory{};  ///< On rank 0; relative to the working directory at
                                      ///< construction. Created by the first save.
  std::string prefix = "checkpoint";  ///< Checkpoints are folders named `<prefix>-<step>`.
  int keep_last = 2;                  ///< Number of most recent checkpoints to keep; at least 1.
  bool keep_best = true;              ///< Also keep the checkpoint with the best metric.
  Goal best = Goal::minimum;          ///< Whether the lowest or the highest metric is best.
};

/// Optional contents of a checkpoint, in addition to the parts that all ranks share.
struct CheckpointExtras {
  std::optional<double> metric{};  ///< Rank 0's value is used. A NaN is never the best.
  NamedViews per_rank{};           ///< Parts that differ between ranks, such as the random state.
};

/// The choice of `save_async` while the previous checkpoint is still being written.
enum class IfBusy : std::uint8_t {
  wait,    ///< Waits for its end.
  refuse,  ///< Saves nothing.
};

/// Saves and loads checkpoints. Each rank writes one file, with its per-rank parts and its share of
/// the shared parts, so no rank gathers the whole state. A checkpoint is complete once all its
/// files are on the disk; then its folder gets its name. When loading, the ranks verify the
/// checksums together, and each reads what it needs.
///
///     kolo::Checkpointer checkpoints({.directory = "run1", .best = kolo::Goal::maximum});
///     if (const auto found = checkpoints.load_latest()) {
///       kolo::load_state({{"weight", weight}}, found->part("model"));
///       sampler.load_state(found->part("sampler"));
///     }
///     ...
///     checkpoints.save_async(step,
///                            {{"model", kolo::StateView({{"weight", weight}})},
///                             {"sampler", sampler.state()}},
///                            {.metric = accuracy});
///
/// All ranks should see rank 0's directory. A rank that does not find the same folder there, as on
/// a host with a local disk, reads and writes no files: rank 0 saves its per-rank parts, and sends
/// it the whole checkpoint when loading.
///
/// Saving, loading and waiting are collectives of the world: all ranks call these functions in the
/// same order, with the same step. A failure on one rank throws CheckpointError on every rank; no
/// partial checkpoint remains, and the session stays usable. Only one job may save into a directory
/// with a prefix; others may read. Not thread-safe.
class KOLO_EXPORT Checkpointer {
 public:
  /// Local. Throws InvalidArgument, on this rank, for an empty directory, a prefix that is empty or
  /// contains a slash, or a `keep_last` below 1.
  explicit Checkpointer(CheckpointerOptions options);
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;
  /// Local. Waits for the end of `save_async`. A warning reports its failure.
  ~Checkpointer();

  /// Writes a checkpoint of the shared `parts` and of the `per_rank` parts of all ranks. Replaces a
  /// checkpoint of the same step, and removes checkpoints that the options do not keep.
  ///
  /// Tensors of 64 KiB and more are divided among the ranks whose `parts` have large tensors of the
  /// same names, dtypes and shapes as rank 0's. Their elements must be equal on all these ranks,
  /// which is not verified. Texts and small tensors are rank 0's; other ranks may leave `parts`
  /// empty. Returns the folder, on all ranks. Throws InvalidArgument for a negative step, on this
  /// rank, and on all ranks for parts that cannot be saved and for different steps.
  std::filesystem::path save(std::int64_t step, const NamedViews& parts,
                             const CheckpointExtras& extras = {});

  /// As `save`, but returns once it has copied what this rank writes; a thread writes the copy. The
  /// buffer, as large as this rank's file, is kept for the next save. If the job ends before the
  /// checkpoint is complete, the previous one remains. The next call, unless it is refused, waits
  /// until the files are written, and throws on every rank what has failed, also a copy that could
  /// not be made. The destructor waits too; the static `load` does not. Returns the folder that the
  /// checkpoint will have, or nothing if the save was refused; `if_busy` must be equal on all
  /// ranks.
  std::optional<std::filesystem::path> save_async(std::int64_t step, const NamedViews& parts,
                                                  const CheckpointExtras& extras = {},
                                                  IfBusy if_busy = IfBusy::wait);

  /// Waits until the last `save_async` is complete, and throws what has failed. If a rank has left
  /// before its file was written, as in an elastic job, the save is given up: a warning says so,
  /// and the call returns.
  void wait();

  /// Loads the most recently saved undamaged checkpoint; `std::nullopt` if there is none. The order
  /// of saves counts, not the step, which may be lower after a return to an older checkpoint. Skips
  /// checkpoints that are damaged or lack files with a warning on rank 0, and leaves them in place.
  [[nodiscard]] std::optional<Checkpoint> load_latest() const;
  /// As `load_latest`, for the checkpoint with the best metric; if several are equal, the one that
  /// was saved first. `std::nullopt` if none has a metric.
  [[nodiscard]] std::optional<Checkpoint> load_best() const;
  /// The path of the checkpoint that `load_latest` would load.
  [[nodiscard]] std::optional<std::filesystem::path> latest() const;

  /// Loads the checkpoint at rank 0's `path`: its folder, or a file that is a whole checkpoint.
  /// Call `wait` before you load what `save_async` writes. Throws CheckpointError on every rank if
  /// it is missing, damaged or not a checkpoint, or cannot be read.
  [[nodiscard]] static Checkpoint load(const std::filesystem::path& path);

 private:
  friend struct internal::DeferredSave;
  class State;
  std::unique_ptr<State> state_;
};

/// Writes the tensors of a checkpoint to one file: `from` is its folder or its index. The result is
/// a whole checkpoint, unless `part` is given: then it has only the tensors of this part, under
/// their names in the part, as other programs know them. Reads one tensor after the other, and
/// verifies the checksums. Throws CheckpointError, and InvalidArgument for a part that the
/// checkpoint lacks. Not collective.
KOLO_EXPORT void merge_checkpoint(const std::filesystem::path& from,
                                  const std::filesystem::path& to, const std::string& part = {});

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
KOLO_EXPORT UnmatchedNames load_state(const TensorViews& into, const StateView& state,
                                      const SafetensorsOptions& options = {});

/// Reads a safetensors file, or the files that an index (`*.index.json`) in the same folder lists.
/// A folder, such as a checkpoint, stands for its `model.safetensors.index.json`.
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
