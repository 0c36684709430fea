// SPDX-License-Identifier: Apache-2.0
// Turns return codes of MPI into exceptions.
#pragma once

namespace kolo::internal::node {

/// Throws BackendError if `code` is not MPI_SUCCESS. `doing` names the call that returned it, such
/// as "MPI_Iallreduce". The communicator must have the error handler MPI_ERRORS_RETURN, or MPI ends
/// the process before this function is called.
void check_mpi(int code, const char* doing);

}  // namespace kolo::internal::node
