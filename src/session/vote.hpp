// Start-up ends in a vote: one rank's bad setting is an error on all that names it.
#pragma once

#include <mpi.h>

#include <string>

namespace kolo::session {

/// Collective. `problem`: why this rank cannot start, or "". Throws InvalidArgument on every rank
/// if any has a problem, or if they run different versions.
void vote(MPI_Comm world, const std::string& problem);

}  // namespace kolo::session
