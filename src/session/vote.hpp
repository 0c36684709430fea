// Start-up ends in a vote: one rank's bad setting is an error on all that names it.
#pragma once

#include <mpi.h>

#include <string>

#include "session/ballot.hpp"

namespace kolo::session {

/// Collective. `problem`: of this rank, or "". Another version is a problem too.
[[nodiscard]] Complaints gather_complaints(MPI_Comm world, const std::string& problem);

/// Collective.
[[nodiscard]] bool on_all_ranks(MPI_Comm comm, bool mine);

/// Collective. `problem`: why this rank cannot start, or "". Throws InvalidArgument on every rank
/// if any has a problem, or if they run different versions.
void vote(MPI_Comm world, const std::string& problem);

}  // namespace kolo::session
