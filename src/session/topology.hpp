// Which rank this is, and how the ranks lie on hosts.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace kolo::session {

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

/// Those of the host of `rank`, ascending.
[[nodiscard]] std::vector<int> ranks_of_host(const Topology& topology, int rank);

/// Collective. Hosts are what MPI says can share memory; `most_ranks_per_host`, the same on all
/// ranks, divides those with more ranks into several. 0: no limit.
[[nodiscard]] Topology find_topology(MPI_Comm world, std::int64_t most_ranks_per_host = 0);

}  // namespace kolo::session
