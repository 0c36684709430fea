// SPDX-License-Identifier: Apache-2.0
// MPI in this process: its start and its end. A build without MPI has startup/mpi_absent.cpp in
// place of the .cpp file.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolo::internal::session {

/// False in a build without MPI, where the functions below do nothing.
[[nodiscard]] bool built_with_mpi();
/// The name and version that MPI reports; "" without MPI.
[[nodiscard]] std::string mpi_library();

/// Initializes MPI, and ends the process in good order when MPI is finalized. There is one, in
/// `this_job()`. Not thread-safe, but for `has_company`.
class MpiEnvironment {
 public:
  /// Initializes MPI on this thread unless the program did. MPI that Kolo has initialized is
  /// finalized when the process exits, so that sessions can follow each other. Throws
  /// InvalidArgument if MPI was finalized already or offers less than MPI_THREAD_SERIALIZED.
  void start(int argc, char** argv);

  /// True if the program has initialized MPI on several processes, and has not finalized it.
  [[nodiscard]] static bool has_company();

  /// Throws InvalidArgument if MPI_COMM_WORLD has this process alone, but its launcher has started
  /// several; BackendError if a process of the last session has ended.
  void require_whole_world() const;

  /// Calls `end` when the program finalizes MPI that it has initialized itself, while MPI still
  /// works. Only the first call has an effect.
  void before_end(void (*end)());

  /// A process of the job has ended or does not respond: the job is to end by MPI_Abort when Kolo
  /// or the program finalizes MPI, because MPI would wait for that process. `for_good`: MPI has
  /// requests in progress that it may complete into freed memory while it is finalized.
  void abort_at_exit(bool for_good);

  /// A session of so many ranks has started. If these are all ranks of the job, no process is lost,
  /// and only `for_good` holds of earlier calls of `abort_at_exit`.
  void expect_no_abort(int ranks);

  /// At exit, abort if one of these processes has ended, and end this process if one ends while MPI
  /// is finalized, which waits for all of them. Replaces the processes of an earlier call.
  void watch_at_exit(std::vector<node::FileDescriptor> processes);

 private:
  struct Callbacks;

  [[nodiscard]] bool any_ends(int timeout_ms) const;
  [[nodiscard]] bool must_abort() const;
  void watch_while_finalizing() const;
  void finalize();

  // Atomic, since a thread watches the other processes while MPI is finalized.
  std::atomic<bool> abort_instead_{false};
  std::atomic<bool> requests_are_left_{false};
  std::atomic<bool> finalized_here_{false};
  pid_t started_by_ = 0;  // the process in which Kolo has initialized MPI; 0: none
  void (*end_what_needs_mpi_)() = nullptr;
  std::vector<node::FileDescriptor> watched_{};
};

}  // namespace kolo::internal::session
