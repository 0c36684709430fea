// SPDX-License-Identifier: Apache-2.0
// The second-level caches of a host, and the share of each rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kolo::internal::node {

/// The second-level caches of the processors that a rank may use.
struct Caches {
  static constexpr int max_processors = 1024;  // processors with higher numbers are left out

  std::int64_t bytes = 0;  // the size of each cache; 0 if not known
  /// One bit for each cache: the number of its first processor.
  std::array<std::uint64_t, max_processors / 64> known_by{};

  void add(int first_processor);
};

/// The bytes of cache for each rank if the ranks share their caches equally; at most one cache.
[[nodiscard]] std::int64_t cache_share(std::span<const Caches> of_ranks);

}  // namespace kolo::internal::node
