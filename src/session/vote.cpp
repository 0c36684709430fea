#include "session/vote.hpp"

#include <cstddef>
#include <vector>

#include "kolo/version.hpp"
#include "node/mpi_error.hpp"
#include "session/ballot.hpp"

namespace kolo::session {

Complaints gather_complaints(MPI_Comm world, const std::string& problem) {
  int size = 1;
  MPI_Comm_size(world, &size);
  const Ballot mine = Ballot::make(version, problem);
  std::vector<Ballot> ballots(static_cast<std::size_t>(size));
  node::check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ballots.data(), sizeof mine, MPI_BYTE, world),
      "MPI_Allgather");
  return collect_complaints(ballots);
}

bool on_all_ranks(MPI_Comm comm, bool mine) {
  int all = mine ? 1 : 0;
  node::check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

void vote(MPI_Comm world, const std::string& problem) {
  require_unanimity(gather_complaints(world, problem));
}

}  // namespace kolo::session
