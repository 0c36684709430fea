// SPDX-License-Identifier: Apache-2.0
// The position of a rank's shard in each tensor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kolo/process_set.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

/// A rank has shard number `index` of the `ranks` shards of every tensor. The elements of a tensor
/// are divided like the rows of a reducescatter. By default, the shard is the whole tensor.
struct ShardPosition {
  int index = 0;
  int ranks = 1;

  /// The position of this rank, whose shards are whole tensors outside the set.
  [[nodiscard]] static ShardPosition in(const ProcessSet& set) {
    return set.rank() >= 0 ? ShardPosition{set.rank(), set.size()} : ShardPosition{};
  }

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

}  // namespace kolo::internal
