// SPDX-License-Identifier: Apache-2.0
// The ranks of a fully sharded model: those that share one copy of it, and those of other copies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kolo/process_set.hpp"

namespace kolo::internal {

struct ShardingSets {
  ProcessSet shards{};  ///< These ranks hold one copy of the model between them.
  /// With hybrid sharding, the ranks that hold the same shards in each copy.
  std::optional<ProcessSet> replicas{};

  /// Collective in all copies. Replaces each value by the largest of all ranks. `step` must be
  /// equal on all ranks.
  void take_largest(std::vector<std::int32_t>& values, const std::string& operation,
                    std::int64_t step) const;
  /// Collective in all copies. Gives all ranks the values of one of them.
  void take_from_one(std::vector<std::int32_t>& values, const std::string& operation) const;
};

}  // namespace kolo::internal
