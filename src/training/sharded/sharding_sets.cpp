// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/sharding_sets.hpp"

#include "kolo/collectives.hpp"

namespace kolo::internal {

void ShardingSets::take_largest(std::vector<std::int32_t>& values, const std::string& operation,
                                std::int64_t step) const {
  const auto reduce = [&](const ProcessSet& set, const std::string& name) {
    const AllreduceOptions options{.name = name, .op = ReduceOp::max, .process_set = set};
    const TensorView view(values);
    detail::call(detail::AllreduceCall{view, view, options, step});
  };
  reduce(shards, operation);
  if (replicas) reduce(*replicas, operation + ".replicas");
}

// The first ranks of all copies are replicas of each other. So after the second broadcast they have
// the same values, and after the third all ranks.
void ShardingSets::take_from_one(std::vector<std::int32_t>& values,
                                 const std::string& operation) const {
  const auto copy = [&](const ProcessSet& set, const std::string& name) {
    broadcast(TensorView(values), set.ranks().front(), {.name = name, .process_set = set});
  };
  copy(shards, operation);
  if (!replicas) return;
  copy(*replicas, operation + ".replicas");
  copy(shards, operation);
}

}  // namespace kolo::internal
