// Checkpoints: written by one rank, held by all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/training/plateau.hpp"

namespace kolo {

/// Bytes by name: what the parts of a training are saved as.
using Blobs = std::map<std::string, std::string>;

/// Why a checkpoint cannot be used.
enum class CheckpointFault : std::uint8_t {
  missing,     ///< There is no such file.
  truncated,   ///< The file is shorter than it says: it was cut off.
  corrupt,     ///< The file is as long as it says, or longer, but its checksum is wrong.
  foreign,     ///< The file is no checkpoint, or of a version that this library does not know.
  incomplete,  ///< It has no part of the name that was asked for.
  io,          ///< The system refused to read or write; the message has its words.
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

/// What a checkpoint holds.
struct Checkpoint {
  std::int64_t step = 0;           ///< Of the training, by which checkpoints are ordered.
  std::optional<double> metric{};  ///< By which the best is chosen.
  int ranks = 0;                   ///< How many ranks the training had.
  Blobs parts{};                   ///< The same on all ranks.
  Blobs own{};  ///< This rank's own parts; empty if the training had another number of ranks.
  std::filesystem::path path{};  ///< Where it was read.

  /// The part of this name. Throws CheckpointError, which names file and part, if there is none.
  [[nodiscard]] KOLO_EXPORT const std::string& part(const std::string& name) const;
  /// The same among this rank's own parts.
  [[nodiscard]] KOLO_EXPORT const std::string& own_part(const std::string& name) const;
};

struct CheckpointerOptions {
  std::filesystem::path directory{};  ///< Of rank 0. Made when the first checkpoint is saved.
  std::string prefix = "checkpoint";  ///< Files are called `<prefix>-<step>.kolo`.
  int keep_last = 2;                  ///< So many of the newest are kept; at least 1.
  bool keep_best = true;              ///< And the one with the best metric, if any has one.
  Goal best = Goal::minimum;          ///< Which metric is best: a loss or an accuracy.
};

/// What may be saved beside the parts that all ranks share.
struct CheckpointExtras {
  std::optional<double> metric{};  ///< Rank 0's counts. A NaN is never the best.
  Blobs own{};  ///< What is different on each rank, such as the state of random numbers.
};

/// Saves and loads checkpoints. Rank 0 alone touches files: it writes under another name, has the
/// system put the bytes on the disk, and renames, so that a file of the right name is a whole one.
/// What it reads, it sends to all, and every rank checks by a checksum that it holds the same.
///
///     kolo::Checkpointer checkpoints({.directory = "run1", .best = kolo::Goal::maximum});
///     if (const auto found = checkpoints.load_latest()) model.load(found->part("model"));
///     ...
///     checkpoints.save(step, {{"model", model.bytes()}, {"sampler", sampler.state()}},
///                      {.metric = accuracy});
///
/// `save`, `load` and their kin are collectives of the world: all ranks call them in the same
/// order. What goes wrong on rank 0 is thrown on every rank, as CheckpointError; then nothing was
/// kept of the file, and the session goes on. Not thread-safe. A whole checkpoint is held in
/// memory.
class Checkpointer {
 public:
  /// Throws InvalidArgument, on this rank, for an empty directory, a prefix that is empty or has a
  /// slash, and a `keep_last` below 1.
  KOLO_EXPORT explicit Checkpointer(CheckpointerOptions options);

  /// Writes a checkpoint of rank 0's `parts` and every rank's own, over one of the same step, and
  /// removes those that are not to be kept. Other ranks may leave `parts` empty. Returns its path
  /// on rank 0. Throws InvalidArgument, on this rank, for a negative step.
  KOLO_EXPORT std::filesystem::path save(std::int64_t step, const Blobs& parts,
                                         const CheckpointExtras& extras = {});

  /// The newest that is whole, by its step. Damaged ones are passed over with a warning on rank 0,
  /// and stay where they are. Nothing if there is none.
  [[nodiscard]] KOLO_EXPORT std::optional<Checkpoint> load_latest() const;
  /// The one with the best metric that is whole, of equals the oldest.
  [[nodiscard]] KOLO_EXPORT std::optional<Checkpoint> load_best() const;
  /// Where `load_latest` would find it.
  [[nodiscard]] KOLO_EXPORT std::optional<std::filesystem::path> latest() const;

  /// Reads any checkpoint. Throws CheckpointError on every rank if it is missing, truncated or
  /// corrupt.
  [[nodiscard]] KOLO_EXPORT static Checkpoint load(const std::filesystem::path& path);

 private:
  CheckpointerOptions options_;
};

}  // namespace kolo
