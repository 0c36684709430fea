// A session among the ranks of a communicator. The one header of Kolo that includes mpi.h.
#pragma once

#include <mpi.h>

#include "kolo/export.hpp"
#include "kolo/session.hpp"

namespace kolo {

/// As `init`, among the ranks of `comm`, which every one of them calls: `kolo::rank()` is the rank
/// in `comm`. The program has initialized MPI, with MPI_THREAD_SERIALIZED at least, and finalizes
/// it after `shutdown`. Kolo works on duplicates of `comm`: what the program sends on it is its own
/// affair. With MPI_THREAD_SERIALIZED the program calls MPI only while no session is open, since
/// Kolo has a thread that does; with MPI_THREAD_MULTIPLE at any time. Throws InvalidArgument as
/// `init`, and for MPI_COMM_NULL.
KOLO_EXPORT void init(MPI_Comm comm, const SessionOptions& options = {});

}  // namespace kolo
