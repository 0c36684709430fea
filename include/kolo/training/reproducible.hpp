// SPDX-License-Identifier: Apache-2.0
// ReproducibleGradients: gradients whose bits do not depend on the number of ranks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

/// Options of ReproducibleGradients. They must be equal on all ranks of the set.
struct ReproducibleOptions {
  /// Parts of the global batch, 1 to 1024. If the number of ranks divides it, all ranks compute
  /// equally long; with fewer parts than ranks, some compute nothing.
  int shards = 0;
  ProcessSet process_set{};  ///< Ranks that share the batch.
};

/// Computes the gradient of a global batch that is divided into shards of equal size. The shards
/// are distributed among the ranks of the present session, and their gradients are added without
/// rounding. So the average has the same bits for every number of ranks, and in an elastic job
/// also after ranks have left or joined:
///
///     kolo::ReproducibleGradients reproducible({.shards = 12});
///     for (...) {
///       reproducible.reduce([&](int shard) { model.gradients_of(batch(step, shard)); },
///                           model.named_gradients());
///       optimizer.step();
///     }
///
/// The computation of a shard must have the same bits on every rank: it depends on the step and
/// the shard, and so must its random numbers. It must not depend on the rank, or on earlier shards
/// as the running statistics of a batch normalization do. All ranks need the same versions of
/// libraries, the same kind of processor and the same number of threads.
///
/// An element is added exactly if its bits are worth 2^-72 or more, else it is rounded to a
/// multiple of 2^-72 (2e-22). If an element is not finite, or not below 2^30 in magnitude, all
/// elements of its gradient become NaN, on all ranks. The average is computed from the sum
/// in f64. Each rank keeps and sends 16 bytes per element. Movable; not thread-safe.
class ReproducibleGradients {
 public:
  /// Local. Throws InvalidArgument for a number of shards that is out of bounds.
  KOLO_EXPORT explicit ReproducibleGradients(const ReproducibleOptions& options);
  KOLO_EXPORT ReproducibleGradients(ReproducibleGradients&&) noexcept;
  KOLO_EXPORT ReproducibleGradients& operator=(ReproducibleGradients&&) noexcept;
  KOLO_EXPORT ~ReproducibleGradients();

  /// This rank's shards, in ascending order: those whose number modulo the number of ranks is this
  /// rank's place in the set.
  [[nodiscard]] KOLO_EXPORT std::vector<int> own_shards() const;

  /// Collective. Calls `compute(shard)` for each of this rank's shards; it writes the gradients of
  /// that shard to `gradients`, in host memory and in f64, f32, f16 or bf16, replacing what they
  /// held. Then writes the average over all shards to `gradients`. Names, shapes and dtypes must be
  /// equal on all ranks, and the names unique.
  ///
  /// If `compute` throws on a rank, that exception leaves `reduce` there, and the other ranks throw
  /// BackwardFailed, which lists that rank; the gradients are then invalid, and the ranks may
  /// continue. Throws InvalidArgument, on this rank, for other gradients, and Mismatch on all ranks
  /// if options differ or a rank has joined.
  KOLO_EXPORT void reduce(const std::function<void(int shard)>& compute,
                          std::span<const NamedTensor> gradients);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo
