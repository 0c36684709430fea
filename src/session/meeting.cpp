#include "session/meeting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <exception>

#include "node/mpi_error.hpp"
#include "session/host_memory.hpp"
#include "session/mpi_environment.hpp"
#include "session/vote.hpp"

namespace kolo::session {
namespace {

using node::check_mpi;

/// More than that cannot be used: the heaps take memory only for what is in them.
std::size_t physical_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Meeting meet_neighbours(MPI_Comm world, const Topology& topology, std::uint64_t session,
                        const Settings& settings) {
  const int node = topology.node_of[static_cast<std::size_t>(topology.rank)];
  MPI_Comm split = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(world, node, topology.rank, &split), "MPI_Comm_split");
  const Communicator host(split);
  if (!on_all_ranks(host.get(), settings.cpu_operations != CpuOperations::mpi))
    return {nullptr, "a rank of this host does without"};
  Meeting meeting;
  try {
    meeting.neighbours = std::make_unique<node::Neighbourhood>(
        node::Party{fmt::format("{:016x}-{}", session, node), topology.local_rank,
                    topology.local_size},
        lay_out_memory(topology).bytes, physical_memory(),
        [&] { check_mpi(MPI_Barrier(host.get()), "MPI_Barrier"); });
  } catch (const std::exception& error) {
    meeting.why = error.what();
  }
  if (!on_all_ranks(host.get(), meeting.neighbours != nullptr)) {
    meeting.neighbours.reset();
    if (meeting.why.empty()) meeting.why = "another rank of this host cannot";
  }
  return meeting;
}

}  // namespace kolo::session
