// SPDX-License-Identifier: Apache-2.0
// Sessions among the ranks of an MPI communicator. The only header of Kolo that includes mpi.h.
#pragma once

#include <mpi.h>

#include "kolo/export.hpp"
#include "kolo/session.hpp"

namespace kolo {

/// Starts the session, like `init`, among the ranks of `comm`. Collective over `comm`.
/// `kolo::rank()` is the rank in `comm`. The program must initialize MPI before this call, with at
/// least MPI_THREAD_SERIALIZED, and finalize it after `shutdown`. Kolo uses duplicates of `comm`,
/// so the program may communicate on `comm` itself: with MPI_THREAD_MULTIPLE at any time, with
/// MPI_THREAD_SERIALIZED only outside sessions, because a thread of Kolo calls MPI during them.
/// Throws the errors of `init`, and InvalidArgument for MPI_COMM_NULL.
KOLO_EXPORT void init(MPI_Comm comm, const SessionOptions& options = {});

}  // namespace kolo
