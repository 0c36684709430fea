// SPDX-License-Identifier: Apache-2.0
// MPI in this process: its start and its end. A build without MPI has startup/mpi_absent.cpp in its
// place.
#pragma once

#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::internal::session {

/// False: this is a build without MPI, and the functions below do nothing.
[[nodiscard]] bool built_with_mpi();

/// Initializes MPI on this thread unless the program did. What Kolo initialized it finalizes when
/// the process exits, so that sessions can follow each other. Throws InvalidArgument if MPI was
/// finalized already or offers less than MPI_THREAD_SERIALIZED.
void start_mpi(int argc, char** argv);

/// True if the program has initialized MPI, and has not finalized it, on several processes.
[[nodiscard]] bool mpi_has_company();

/// Throws InvalidArgument if MPI_COMM_WORLD has this process alone, but its launcher has started
/// several; BackendError if a process of the last session has ended.
void require_whole_world();

/// Calls `end` when the program finalizes MPI that it initialized itself: MPI still works then. Of
/// several calls the first counts.
void before_mpi_ends(void (*end)());

/// A process of the job has ended or does not respond. End the job by MPI_Abort when MPI would be
/// finalized, by Kolo or by the program: that process never does so, and MPI would wait for it.
/// `for_good`: MPI was left with requests in progress, so that to finalize it may write memory that
/// is gone.
void abort_at_exit(bool for_good);

/// So many ranks have started a session together: if they are all of the job, no process is lost,
/// whatever an earlier session saw. Requests in progress stay.
void expect_no_abort(int ranks);

/// At exit: do the same if one of these processes has ended; and end this one if one ends while MPI
/// is finalized, which waits for all of them. Replaces those of an earlier call.
void watch_at_exit(std::vector<node::FileDescriptor> processes);

/// The name and version that MPI reports; "" without MPI.
[[nodiscard]] std::string mpi_library();

}  // namespace kolo::internal::session
