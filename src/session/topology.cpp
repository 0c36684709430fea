#include "session/topology.hpp"

#include <cstddef>
#include <map>

#include "node/mpi_error.hpp"
#include "session/mpi_environment.hpp"

namespace kolo::session {

using node::check_mpi;

namespace {

/// The ranks of this host.
Communicator split_by_hosts(MPI_Comm world, int rank, std::int64_t most_ranks_per_host) {
  MPI_Comm split = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &split),
            "MPI_Comm_split_type");
  Communicator host(split);
  if (most_ranks_per_host == 0) return host;
  int place = 0;
  MPI_Comm_rank(host.get(), &place);
  check_mpi(MPI_Comm_split(host.get(), static_cast<int>(place / most_ranks_per_host), rank, &split),
            "MPI_Comm_split");
  return Communicator(split);
}

}  // namespace

std::vector<int> ranks_of_host(const Topology& topology, int rank) {
  std::vector<int> ranks;
  const int node = topology.node_of[static_cast<std::size_t>(rank)];
  for (int other = 0; other < topology.size; ++other)
    if (topology.node_of[static_cast<std::size_t>(other)] == node) ranks.push_back(other);
  return ranks;
}

Topology find_topology(MPI_Comm world, std::int64_t most_ranks_per_host) {
  Topology topology;
  MPI_Comm_rank(world, &topology.rank);
  MPI_Comm_size(world, &topology.size);

  const Communicator local = split_by_hosts(world, topology.rank, most_ranks_per_host);
  MPI_Comm_rank(local.get(), &topology.local_rank);
  MPI_Comm_size(local.get(), &topology.local_size);

  int leader = topology.rank;
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, local.get()), "MPI_Bcast");
  topology.node_of.resize(static_cast<std::size_t>(topology.size));
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, topology.node_of.data(), 1, MPI_INT, world),
            "MPI_Allgather");

  std::map<int, int> ranks_on;
  for (const int node : topology.node_of) ++ranks_on[node];
  topology.cross_size = 0;
  for (const auto& [node, ranks] : ranks_on) {
    if (ranks != topology.local_size) topology.homogeneous = false;
    if (ranks <= topology.local_rank) continue;
    if (node < leader) ++topology.cross_rank;
    ++topology.cross_size;
  }
  return topology;
}

}  // namespace kolo::session
