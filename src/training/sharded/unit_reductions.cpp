// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_reductions.hpp"

#include <utility>
#include <vector>

namespace kolo::internal {

void UnitReductions::start(std::unique_ptr<UnitGradients> gradients,
                           const ReducescatterOptions& options, std::int64_t step, bool in_order,
                           const std::optional<ProcessSet>& replicas) {
  const std::vector<ConstTensorView> whole = gradients->whole();
  if (whole.empty()) return;
  for (auto next = pending_.begin(); in_order && next != pending_.end();) {
    const auto current = next++;
    if (current->in_order) land(current);
  }
  const std::vector<TensorView> shards = gradients->shards();
  std::optional<GroupedAllreduceOptions> over_replicas;
  if (replicas)
    over_replicas = {.name = options.name + ".replicas",
                     .op = options.op,
                     .compression = options.compression,
                     .process_set = *replicas};
  const bool is_local = gradients->is_undivided();
  pending_.push_back(
      {std::move(gradients), options.name, in_order, is_local, std::move(over_replicas), {}});
  if (!is_local)
    pending_.back().future =
        detail::call_async(detail::ReducescatterCall{whole, shards, options, step});
  ++started_;
}

void UnitReductions::land(std::list<Pending>::iterator pending) {
  std::list<Pending> landed;
  landed.splice(landed.begin(), pending_, pending);
  if (!landed.front().is_local) {
    if (!landed.front().future.valid()) return;  // its start has thrown
    landed.front().future.get();
  }
  if (const auto& options = landed.front().over_replicas)
    grouped_allreduce(landed.front().gradients->shards(), *options);
  if (!drops_results_) landed.front().gradients->accumulate();
}

// Ranks that reduce over replicas wait for each other here, so the rest land in an order that is
// the same on all ranks.
void UnitReductions::land() {
  pending_.sort([](const Pending& a, const Pending& b) {
    return a.in_order != b.in_order ? a.in_order : !a.in_order && a.name < b.name;
  });
  while (!pending_.empty()) land(pending_.begin());
}

void UnitReductions::clear() noexcept {
  pending_.clear();
  drops_results_ = false;
}

}  // namespace kolo::internal
