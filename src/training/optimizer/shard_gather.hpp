// SPDX-License-Identifier: Apache-2.0
// The shards of tensors: where they lie in a tensor and how they are gathered. Also the options and
// agreements of every ShardedOptimizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

/// A rank has shard number `index` of the `ranks` shards of every tensor. The elements of a tensor
/// are divided like the rows of a reducescatter. By default, the shard is the whole tensor.
struct ShardPosition {
  int index = 0;
  int ranks = 1;

  /// This rank's position in the set. For a rank outside the set, shards are whole tensors.
  [[nodiscard]] static ShardPosition in(const ProcessSet& set) {
    return set.rank() >= 0 ? ShardPosition{set.rank(), set.size()} : ShardPosition{};
  }

  /// The same; throws InvalidArgument, whose message begins with `subject`, on other ranks.
  KOLO_EXPORT static ShardPosition of_member(const ProcessSet& set, const std::string& subject);

  /// The shard of a tensor with this many elements.
  [[nodiscard]] std::int64_t begin(std::int64_t elements) const {
    return elements / ranks * index + std::min<std::int64_t>(index, elements % ranks);
  }
  [[nodiscard]] std::int64_t size(std::int64_t elements) const {
    return reducescatter_rows(elements, index, ranks);
  }
  [[nodiscard]] std::int64_t end(std::int64_t elements) const {
    return begin(elements) + size(elements);
  }

  friend bool operator==(const ShardPosition&, const ShardPosition&) = default;
};

/// One allgather of shards into whole tensors. A rank that has joined contributes nothing, so the
/// other ranks' shards would be out of place: the gather then goes to other memory, and `run`
/// throws. Must not move before `run`.
class ShardGather {
 public:
  KOLO_EXPORT explicit ShardGather(ProcessSet set);

  /// `shard` may lie in `whole`, at its place. `elsewhere` returns memory of the size of `whole`
  /// that lives as long as this object.
  KOLO_EXPORT void add(const ConstTensorView& shard, const TensorView& whole,
                       std::function<void*()> elsewhere);

  /// Collective. Throws Mismatch if a rank of the set has joined; no tensor has changed then.
  KOLO_EXPORT void run(const std::string& name);

 private:
  ProcessSet set_;
  std::vector<ConstTensorView> sources_{};
  std::vector<Allocator> allocators_{};
  std::vector<int> joined_{};
};

/// Collective. Replaces the gather of this name on a rank that drops its step, so that ranks that
/// gather parameters get Mismatch and do not wait forever.
KOLO_EXPORT void gather_nothing(const std::string& name, const ProcessSet& set);

/// Collective. Throws Mismatch if a rank of the set has joined, because that rank would not step
/// its shards. Needed where whole gradients are reduced: an allreduce ignores ranks that have
/// joined.
KOLO_EXPORT void require_all_ranks(const std::string& name, const ProcessSet& set);

/// Throws InvalidArgument for options that a ShardedOptimizer does not have.
KOLO_EXPORT void require_divisible(const DistributedOptimizerOptions& options, Sharding sharding);

/// Describes the sharding in the agreement of the ranks at construction.
[[nodiscard]] KOLO_EXPORT std::string describe(Sharding sharding);

[[nodiscard]] KOLO_EXPORT ReducescatterOptions
reducescatter_options(const GroupedAllreduceOptions& options);

}  // namespace kolo::internal
