// SPDX-License-Identifier: Apache-2.0
// The reductions of a pass that have begun and not landed in the shards' gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "kolo/collectives.hpp"
#include "training/sharded/unit_memory.hpp"

namespace kolo::internal {

/// Reduces gradients into shards. Not thread-safe.
class UnitReductions {
 public:
  /// Starts to reduce. If `in_order`, all ranks start the reductions for which this is true in the
  /// same order, and the last such one has landed before: one is in flight at a time. `step` must
  /// be equal on all ranks. With `replicas`, the reduced shards are then reduced over these ranks,
  /// too. Does nothing if there are no gradients.
  void start(std::unique_ptr<UnitGradients> gradients, const ReducescatterOptions& options,
             std::int64_t step, bool in_order, const std::optional<ProcessSet>& replicas);
  /// Waits for all.
  void land();
  /// From now on, results are dropped.
  void drop_results() noexcept { drops_results_ = true; }
  /// Waits for all, and drops results and errors.
  void clear() noexcept;

  [[nodiscard]] std::int64_t started() const { return started_; }

 private:
  struct Pending {
    std::unique_ptr<UnitGradients> gradients;
    std::string name;
    bool in_order;
    bool is_local;  // the whole gradients are the shards
    std::optional<GroupedAllreduceOptions> over_replicas;
    Future<void> future;  // last, because it uses the memory of the gradients
  };

  void land(std::list<Pending>::iterator pending);

  std::list<Pending> pending_{};
  bool drops_results_ = false;
  std::int64_t started_ = 0;
};

}  // namespace kolo::internal
