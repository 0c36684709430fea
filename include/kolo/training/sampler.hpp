// SPDX-License-Identifier: Apache-2.0
// DistributedSampler: each rank's share of the data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// What to do if the number of examples is not a multiple of n, the number of ranks.
enum class Remainder : std::uint8_t {
  drop,    ///< Skip up to n - 1 examples per epoch; with `shuffle`, different ones each epoch.
  pad,     ///< Repeat up to n - 1 examples, as torch's DistributedSampler does.
  uneven,  ///< Use each example once: some ranks get one more than others.
};

/// Options of DistributedSampler.
struct DistributedSamplerOptions {
  std::int64_t examples = 0;  ///< Size of the data set; equal on all ranks.
  int rank = -1;              ///< This rank; -1: the session's rank.
  int ranks = -1;             ///< Number of ranks that share the data; -1: the session's size.
  bool shuffle = true;        ///< Use a new order each epoch, the same on all ranks.
  std::uint64_t seed = 0;     ///< Seed of the order; must be equal on all ranks.
  Remainder remainder = Remainder::drop;
};

/// Shares the examples of a data set among ranks. No two ranks get the same example, except with
/// `pad`. The order of an epoch depends only on the seed and the epoch. Ranks take examples from
/// that order in turn, so that after any number of steps all ranks together have seen a prefix of
/// it. There is no communication: every rank computes the same order. Not thread-safe.
///
/// Training can stop and resume within an epoch, even with another number of ranks, without losing
/// or repeating an example (apart from the remainder):
///
///     while (sampler.epoch() < epochs) {
///       const auto indices = sampler.indices();             // the rest of the epoch
///       for (i = 0; i < sampler.steps_left(batch_size);) {  // equally many steps on all ranks
///         ...                                               // train on this rank's next batch
///         sampler.advance(batch_size);
///       }
///       sampler.begin_epoch(sampler.epoch() + 1);
///     }
class DistributedSampler {
 public:
  /// Throws InvalidArgument for a negative number of examples or a rank outside `ranks`.
  KOLO_EXPORT explicit DistributedSampler(const DistributedSamplerOptions& options);

  /// This rank's examples in the whole of `epoch`, in training order.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> indices(std::int64_t epoch) const;

  /// This rank's examples in the rest of the current epoch.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> indices() const;

  /// Number of steps of `batch_size` examples per rank that are left in the epoch; the same on all
  /// ranks. The last step may have fewer examples, and with `uneven` none on some ranks. Throws
  /// InvalidArgument for a batch size below 1.
  [[nodiscard]] KOLO_EXPORT std::int64_t steps_left(std::int64_t batch_size) const;

  /// Records one step of `batch_size` examples on each rank, or fewer at the end of the epoch.
  /// Throws InvalidArgument for a batch size below 1.
  KOLO_EXPORT void advance(std::int64_t batch_size);

  // The functions below are for ranks whose batches differ in size: `shares[r]` is the number of
  // examples of rank r in a step, as `BatchShares::all` returns them. Each step takes the next
  // positions of the epoch's order, first those of rank 0. Every example is used once, whatever
  // `remainder` says: in the last step of an epoch, the examples that are left are divided in the
  // proportion of the shares, and some ranks may get none. The shares may change after any step.
  // These functions throw InvalidArgument unless there is a share for each rank, none is negative,
  // and their sum is 1 to 2^30.

  /// This rank's examples in the rest of the current epoch: `shares[rank]` for each step, and those
  /// of the last step.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> indices(
      std::span<const std::int64_t> shares) const;
  /// Number of steps that are left in the epoch; the same on all ranks.
  [[nodiscard]] KOLO_EXPORT std::int64_t steps_left(std::span<const std::int64_t> shares) const;
  /// The number of examples of each rank in the next step: the shares, except in the last step. All
  /// are 0 at the end of the epoch.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> next_sizes(
      std::span<const std::int64_t> shares) const;
  /// The factor for the mean loss of this rank's examples in the next step. If the ranks' gradients
  /// are averaged, they are then those of the mean over the examples of all ranks. 0 for a rank
  /// that gets none.
  [[nodiscard]] KOLO_EXPORT double weight(std::span<const std::int64_t> shares) const;
  /// Records one step. `shares` are those of that step: call it before `BatchShares::agree`.
  KOLO_EXPORT void advance(std::span<const std::int64_t> shares);

  /// Moves to the start of an epoch.
  KOLO_EXPORT void begin_epoch(std::int64_t epoch);

  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  /// Number of positions in the epoch's order that all ranks together have finished.
  [[nodiscard]] std::int64_t consumed() const { return consumed_; }
  [[nodiscard]] std::uint64_t seed() const { return options_.seed; }

  /// Save and restore seed, epoch and `consumed` for a checkpoint. The state is the same on all
  /// ranks and does not depend on their number. `load_state` throws InvalidArgument unless the
  /// string came from `state` with the same `examples` and `shuffle`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

  /// Takes the rank and the number of ranks of a new session, unless the options set them. The
  /// rest of the epoch is then shared among these ranks. Throws NotInitialized outside a session.
  KOLO_EXPORT void rejoin();

 private:
  void require_shares(std::span<const std::int64_t> shares) const;
  [[nodiscard]] std::vector<std::int64_t> order_of(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t positions_from(std::int64_t consumed) const;
  [[nodiscard]] std::vector<std::int64_t> share(std::int64_t epoch, std::int64_t consumed) const;

  DistributedSamplerOptions options_;
  bool takes_rank_ = false;   // whether the rank is the session's
  bool takes_ranks_ = false;  // whether the number of ranks is the session's
  std::int64_t epoch_ = 0;
  std::int64_t consumed_ = 0;
};

}  // namespace kolo
