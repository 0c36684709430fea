// SPDX-License-Identifier: Apache-2.0
// The number of this rank, and the distribution of ranks over hosts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace kolo::internal::session {

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;
  std::vector<int> node_of{0};  // for each rank, the lowest rank of its host
};

/// `node_of`: for each rank, the lowest rank of its host.
[[nodiscard]] inline Topology make_topology(int rank, std::vector<int> node_of) {
  std::map<int, int> ranks_on;
  int local_rank = 0;
  const int node = node_of[static_cast<std::size_t>(rank)];
  for (std::size_t other = 0; other < node_of.size(); ++other) {
    ++ranks_on[node_of[other]];
    if (node_of[other] == node && static_cast<int>(other) < rank) ++local_rank;
  }
  Topology topology{.rank = rank,
                    .size = static_cast<int>(node_of.size()),
                    .local_rank = local_rank,
                    .local_size = ranks_on[node],
                    .cross_size = 0,
                    .node_of = std::move(node_of)};
  for (const auto& [other, ranks] : ranks_on) {
    if (ranks != topology.local_size) topology.homogeneous = false;
    if (ranks <= topology.local_rank) continue;
    if (other < node) ++topology.cross_rank;
    ++topology.cross_size;
  }
  return topology;
}

/// The ranks on the same host as `rank`, itself included, ascending.
[[nodiscard]] inline std::vector<int> ranks_of_host(const Topology& topology, int rank) {
  std::vector<int> ranks;
  const int node = topology.node_of[static_cast<std::size_t>(rank)];
  for (int other = 0; other < topology.size; ++other)
    if (topology.node_of[static_cast<std::size_t>(other)] == node) ranks.push_back(other);
  return ranks;
}

/// The place of a rank on its host, before the topology is known.
struct LocalPosition {
  int lowest_rank = 0;  // the lowest rank of its host
  int local_rank = 0;
  int local_size = 1;
};

/// `ranks_of_machine`: the ranks that may share memory with `rank`, itself included, ascending.
/// They form one host, or several hosts of at most `max_ranks_per_host` ranks each. 0: no limit.
[[nodiscard]] inline LocalPosition find_local_position(int rank,
                                                       const std::vector<int>& ranks_of_machine,
                                                       std::int64_t max_ranks_per_host = 0) {
  const auto found = std::ranges::find(ranks_of_machine, rank);
  LocalPosition position{.local_rank = static_cast<int>(found - ranks_of_machine.begin()),
                         .local_size = static_cast<int>(ranks_of_machine.size())};
  int first = 0;  // the index of the first rank in this rank's part of the machine
  if (max_ranks_per_host > 0) {
    const int part =
        static_cast<int>(std::min<std::int64_t>(max_ranks_per_host, position.local_size));
    first = position.local_rank / part * part;
    position.local_rank -= first;
    position.local_size = std::min(part, position.local_size - first);
  }
  position.lowest_rank = ranks_of_machine[static_cast<std::size_t>(first)];
  return position;
}

}  // namespace kolo::internal::session
