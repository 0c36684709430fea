// SPDX-License-Identifier: Apache-2.0
// Return codes of MPI as exceptions.
#pragma once

namespace kolo::internal::node {

/// Throws BackendError if `code` is not MPI_SUCCESS. `doing` is the call that returned it, such as
/// "MPI_Iallreduce". The communicator must return errors (MPI_ERRORS_RETURN), or MPI ends the
/// process before this is reached.
void check_mpi(int code, const char* doing);

}  // namespace kolo::internal::node
