// SPDX-License-Identifier: Apache-2.0
#include "base/overlap.hpp"

#include <algorithm>

namespace kolo::internal {
namespace {

constexpr std::less<> is_before;

struct FurthestReads {
  const MemoryUse* first = nullptr;
  const MemoryUse* second = nullptr;

  void add(const MemoryUse& use) {
    if (first == nullptr || is_before(first->end, use.end)) {
      second = std::exchange(first, &use);
    } else if (second == nullptr || is_before(second->end, use.end)) {
      second = &use;
    }
  }
  /// Among the reads of all positions except `position`, the one that reaches furthest.
  [[nodiscard]] const MemoryUse* other_than(std::size_t position) const {
    return first != nullptr && first->position == position ? second : first;
  }
};

bool overlaps(const MemoryUse* earlier, const MemoryUse& use) {
  return earlier != nullptr && earlier->position != use.position &&
         is_before(use.begin, earlier->end);
}

}  // namespace

Overlap find_overlap(std::vector<MemoryUse> uses) {
  std::erase_if(uses, [](const MemoryUse& use) { return use.begin == use.end; });
  std::ranges::sort(uses, is_before, &MemoryUse::begin);
  // The uses are visited by ascending address. The memory written so far is disjoint, so only the
  // last write can reach into the next use. Among reads, the two that reach furthest are enough:
  // each position reads once, so at most one of the two belongs to the use's own position.
  const MemoryUse* written = nullptr;
  FurthestReads read;
  for (const MemoryUse& use : uses) {
    const MemoryUse* found = overlaps(written, use) ? written : nullptr;
    if (use.written && found == nullptr)
      if (const MemoryUse* other = read.other_than(use.position); overlaps(other, use))
        found = other;
    if (found != nullptr) return std::minmax(found->position, use.position);
    if (use.written) {
      written = &use;
    } else {
      read.add(use);
    }
  }
  return std::nullopt;
}

}  // namespace kolo::internal
