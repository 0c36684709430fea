// SPDX-License-Identifier: Apache-2.0
// Made-up NUMA nodes for the ranks of a test.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "backend/shm/groups.hpp"

namespace kolo::internal::backend {

using NodeOfRank = int (*)(int rank);

inline constexpr std::array<NodeOfRank, 4> node_layouts{
    [](int /*rank*/) { return -1; },                // unknown
    [](int rank) { return rank % 2; },              // alternating
    [](int rank) { return rank == 0 ? 7 : 3; },     // the first rank is alone in the last group
    [](int rank) { return rank * rank % 11 % 3; },  // groups of 6, 4 and 2, or of 7, 6 and 3
};

inline std::vector<int> nodes_in(std::size_t layout, int size) {
  std::vector<int> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back(node_layouts.at(layout)(rank));
  return nodes;
}

/// The nodes of few ranks: even two ranks may be divided, and groups may be uneven or have one
/// rank.
inline shm::NumaNodes few_ranks_on(std::vector<int> nodes) {
  return {.of_ranks = std::move(nodes),
          .max_ranks_flat = 1,
          .min_ranks_of_group = 1,
          .max_unevenness = 16};
}

/// The nodes of many ranks, divided as in a session, except that groups may be uneven.
inline shm::NumaNodes made_up_nodes(std::size_t layout, int size) {
  if (size <= shm::max_ranks_alone) return few_ranks_on(nodes_in(layout, size));
  return {.of_ranks = nodes_in(layout, size), .max_unevenness = 16};
}

}  // namespace kolo::internal::backend
