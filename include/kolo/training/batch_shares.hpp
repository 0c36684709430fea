// SPDX-License-Identifier: Apache-2.0
// BatchShares: shares of the batch that follow the speed of each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// Options of BatchShares. They must be equal on all ranks of the set.
struct BatchSharesOptions {
  std::int64_t global_batch = 0;  ///< Examples of all ranks in a step; at most 2^30.
  std::int64_t min_share = 1;     ///< At least 1, because a rank without examples has no speed.
  std::int64_t max_share = 0;     ///< Limit of every share, for the smallest memory; 0: none.
  double max_change = 2.0;  ///< A share grows or shrinks at most by this factor in one `agree`, or
                            ///< by one example. Greater than 1.
  double min_gain = 0.05;   ///< Shares change only if the best ones shorten the slowest rank's time
                            ///< for a step by more than this fraction. 0 to less than 1.
  ProcessSet process_set{};  ///< Ranks that share the batch.
};

/// Divides a global batch of fixed size among ranks of different speeds, so that all ranks need
/// equally long for their shares. The shares are equal at first. The ranks measure how long they
/// compute, and from time to time agree on new shares:
///
///     kolo::BatchShares shares({.global_batch = 512});
///     ...
///     const double loss = shares.time(batch.size(), [&] { return gradients(model, batch); });
///     optimizer.step();           // averages the gradients, which were multiplied by `weight`
///     ...
///     if (shares.agree()) ...     // at the end of an epoch: the next batches have other sizes
///
/// Multiply the mean loss of a rank's examples by `DistributedSampler::weight(shares.all())` in
/// each step; without a sampler by `weight()`, which is that of whole steps. The average of the
/// ranks' gradients (ReduceOp::average) is then the gradient of the mean over the global batch, as
/// in a single process, except for rounding. A custom optimizer's gradients must be zero on a rank
/// without examples; with LibTorch, that rank calls the optimizer's `step` without a backward pass.
///
/// A rank's speed is the number of its examples per second since the last `agree`. Time only the
/// rank's own work: a call that waits for the other ranks would make all ranks look equally fast.
/// Not thread-safe.
class BatchShares {
 public:
  /// Local. Throws InvalidArgument, on this rank, for an option that is out of bounds or a set that
  /// does not include this rank.
  KOLO_EXPORT explicit BatchShares(const BatchSharesOptions& options);

  /// The number of examples of each rank of the set in a step, in the order of the ranks; for
  /// DistributedSampler. The sum is the global batch.
  [[nodiscard]] const std::vector<std::int64_t>& all() const { return shares_; }
  /// The number of examples of this rank in a step.
  [[nodiscard]] KOLO_EXPORT std::int64_t own() const;
  /// The factor for the mean loss of this rank's `own()` examples: `own()` times the number of
  /// ranks of the set, divided by the global batch.
  [[nodiscard]] KOLO_EXPORT double weight() const;

  /// Calls `work`, which computes the gradients of `examples` examples, and records how long it
  /// takes. Returns its result. If it throws, nothing is recorded. `work` must not wait for other
  /// ranks, and must return only when its work on a GPU is done.
  template <typename Work>
  auto time(std::int64_t examples, Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    const auto record = [&] {
      add(examples,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    };
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      std::forward<Work>(work)();
      record();
    } else {
      auto result = std::forward<Work>(work)();
      record();
      return result;
    }
  }

  /// Records that this rank has computed `examples` examples in `seconds`. No examples add nothing.
  /// Throws InvalidArgument for a negative number, and for seconds that are not finite.
  KOLO_EXPORT void add(std::int64_t examples, double seconds);

  /// Chooses new shares from what the ranks have recorded since the last call, and forgets it.
  /// Returns true if the shares have changed, and the same on all ranks. While a rank has recorded
  /// no time, nothing changes, and all records are kept.
  ///
  /// Collective in the set, with one allgather. Throws Mismatch on every rank, naming the ranks, if
  /// their options or shares differ, and if a rank has joined. Throws the errors of `allgather`.
  KOLO_EXPORT bool agree();

  /// Call it after a new session has begun; `elastic::State::sync` does. Forgets what was recorded,
  /// and gives the ranks of the session equal shares. Local. Throws InvalidArgument if there are
  /// too many ranks for the global batch, too few for `max_share`, or for a process set, which ends
  /// with its session.
  KOLO_EXPORT void rejoin();

 private:
  void share_equally();

  BatchSharesOptions options_;
  std::vector<std::int64_t> shares_{};
  double examples_ = 0.0;  // since the last agreement
  double seconds_ = 0.0;   // likewise
};

}  // namespace kolo
