// Each rank's share of the data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// What happens to examples that cannot be shared evenly among n ranks.
enum class Remainder : std::uint8_t {
  drop,    ///< Up to n - 1 are left out of an epoch; others in the next, if shuffled.
  pad,     ///< Up to n - 1 are given twice, as torch's DistributedSampler does.
  uneven,  ///< Each is given once: some ranks get one more.
};

struct DistributedSamplerOptions {
  std::int64_t examples = 0;  ///< How many examples the data set has, on every rank the same.
  int rank = -1;              ///< This rank; -1: the session's.
  int ranks = -1;             ///< How many ranks share the data; -1: the session's.
  bool shuffle = true;        ///< A new order each epoch, the same on all ranks.
  std::uint64_t seed = 0;     ///< Of the order; must be alike on all ranks.
  Remainder remainder = Remainder::drop;
};

/// Shares the examples of a data set among ranks: no example is given to two of them, unless
/// `pad` says so. The order of an epoch depends on seed and epoch alone; the ranks take turns in
/// it, so that what all of them have seen after some steps is its beginning, for any number of
/// ranks. Pure: every rank computes the same. Not thread-safe.
///
/// It can be stopped and gone on with within an epoch, also by another number of ranks, and no
/// example of the epoch is then lost or seen again:
///
///     while (sampler.epoch() < epochs) {
///       const auto indices = sampler.indices();             // what is left of the epoch
///       for (i = 0; i < sampler.steps_left(batch_size);) {  // as many on all ranks
///         ...                                               // train on this rank's next batch
///         sampler.advance(batch_size);
///       }
///       sampler.begin_epoch(sampler.epoch() + 1);
///     }
class DistributedSampler {
 public:
  /// Throws InvalidArgument for a negative number of examples or a rank outside `ranks`.
  KOLO_EXPORT explicit DistributedSampler(const DistributedSamplerOptions& options);

  /// This rank's examples in `epoch`, all of it, in the order to be visited.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> indices(std::int64_t epoch) const;

  /// This rank's examples in what is left of the current epoch.
  [[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> indices() const;

  /// How many steps of `batch_size` examples per rank are left in the epoch: the same number on all
  /// ranks. The last may be smaller, and with `uneven` empty on some ranks. Throws InvalidArgument
  /// for a batch size below 1.
  [[nodiscard]] KOLO_EXPORT std::int64_t steps_left(std::int64_t batch_size) const;

  /// All ranks have done one step of `batch_size` examples each, or what was left. Throws
  /// InvalidArgument for a batch size below 1.
  KOLO_EXPORT void advance(std::int64_t batch_size);

  /// Goes to the start of an epoch.
  KOLO_EXPORT void begin_epoch(std::int64_t epoch);

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  /// How many places of the epoch's order all ranks together are through with.
  [[nodiscard]] std::int64_t consumed() const { return consumed_; }
  [[nodiscard]] std::uint64_t seed() const { return options_.seed; }

  /// Seed, epoch and `consumed`, for a checkpoint, and back; the same on all ranks. The number of
  /// ranks is no part of it. `load` throws InvalidArgument for anything but what `state` gave, and
  /// for a state of a data set of another size or of another `shuffle`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load(const std::string& state);

 private:
  [[nodiscard]] std::vector<std::int64_t> order_of(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t places_from(std::int64_t consumed) const;
  [[nodiscard]] std::vector<std::int64_t> share(std::int64_t epoch, std::int64_t consumed) const;

  DistributedSamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t consumed_ = 0;
};

}  // namespace kolo
