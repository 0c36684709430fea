// SPDX-License-Identifier: Apache-2.0
// What the ShardedOptimizers share: parts of tensors, and their gather.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/sharded_optimizer.hpp"

namespace kolo::internal {

/// The parts of the ranks of a set, by `reducescatter_rows`, of a tensor with so many elements.
[[nodiscard]] KOLO_EXPORT std::vector<std::int64_t> part_sizes(std::int64_t elements, int ranks);
/// Where the part of the rank with this index begins.
[[nodiscard]] KOLO_EXPORT std::int64_t part_begin(std::int64_t elements, int index, int ranks);

/// One allgather of parts into whole tensors. A rank that has joined contributes nothing, and the
/// others' parts would be out of place: they are put elsewhere then. Must not move before `run`.
class ShardGather {
 public:
  KOLO_EXPORT explicit ShardGather(ProcessSet set);

  /// `part` may lie in `whole`, at its place. `elsewhere` returns memory of the size of `whole`
  /// that lives as long as this object.
  KOLO_EXPORT void add(const ConstTensorView& part, const TensorView& whole,
                       std::function<void*()> elsewhere);

  /// Collective. Throws Mismatch if a rank of the set has joined; no tensor has changed then.
  KOLO_EXPORT void run(const std::string& name);

 private:
  ProcessSet set_;
  std::vector<ConstTensorView> sources_{};
  std::vector<Allocator> allocators_{};
  std::vector<int> joined_{};
};

/// Collective. In place of the gather under this name, so that ranks that gather get Mismatch.
KOLO_EXPORT void gather_nothing(const std::string& name, const ProcessSet& set);

/// Collective. Throws Mismatch if a rank of the set has joined. An allreduce does not: but a rank
/// that has joined does not step its parts.
KOLO_EXPORT void require_all_ranks(const std::string& name, const ProcessSet& set);

/// Throws InvalidArgument for options that a ShardedOptimizer does not have.
KOLO_EXPORT void require_divisible(const DistributedOptimizerOptions& options, Sharding sharding);

/// What the ranks agree on at construction.
[[nodiscard]] KOLO_EXPORT std::string describe(Sharding sharding);

[[nodiscard]] KOLO_EXPORT ReducescatterOptions
reducescatter_options(const GroupedAllreduceOptions& options);

}  // namespace kolo::internal
