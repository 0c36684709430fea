// SPDX-License-Identifier: Apache-2.0
// The number of this rank, and the distribution of ranks over hosts.
#pragma once

#include <cstdint>
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
[[nodiscard]] Topology make_topology(int rank, std::vector<int> node_of);

/// The ranks on the same host as `rank`, itself included, ascending.
[[nodiscard]] std::vector<int> ranks_of_host(const Topology& topology, int rank);

/// The place of a rank on its host, before the topology is known.
struct LocalPosition {
  int lowest_rank = 0;  // the lowest rank of its host
  int local_rank = 0;
  int local_size = 1;
};

/// `ranks_of_machine`: the ranks that may share memory with `rank`, itself included, ascending.
/// They form one host, or several hosts of at most `max_ranks_per_host` ranks each. 0: no limit.
[[nodiscard]] LocalPosition find_local_position(int rank, const std::vector<int>& ranks_of_machine,
                                                std::int64_t max_ranks_per_host = 0);

}  // namespace kolo::internal::session
