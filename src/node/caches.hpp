// SPDX-License-Identifier: Apache-2.0
// The caches that the ranks of a host share out among them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kolo::internal::node {

/// The second-level caches of the processors that a rank may use.
struct Caches {
  static constexpr int max_processors = 1024;  // others are left out

  std::int64_t bytes = 0;                                     // of each; 0 if not known
  std::array<std::uint64_t, max_processors / 64> known_by{};  // their first processors, as bits

  void add(int first_processor);
};

/// The part of the caches of all ranks that each rank has, in bytes. At most one cache.
[[nodiscard]] std::int64_t cache_share(std::span<const Caches> of_ranks);

}  // namespace kolo::internal::node
