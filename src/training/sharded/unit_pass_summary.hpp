// SPDX-License-Identifier: Apache-2.0
// What the ranks tell each other at the end of a pass of a fully sharded model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/sharded/sharding_sets.hpp"

namespace kolo::internal {

struct UnitPassSummary {
  bool has_failed = false;  ///< Forward or backward has thrown.
  /// Units whose gradients came after the unit was reduced: 1 or 0.
  std::vector<std::int32_t> late{};
  /// For each unit the trained parameters that have a gradient: 1 or 0.
  std::vector<std::vector<std::int32_t>> used{};

  /// Collective. Replaces each entry by whether it is true on any rank. `subject` begins messages,
  /// and `prefix` the names of operations; `step` must be equal on all ranks. If any rank has
  /// failed, throws BackwardFailed on all ranks.
  void agree(const std::string& subject, const std::string& prefix, const ShardingSets& sets,
             std::int64_t step);
};

}  // namespace kolo::internal
