// SPDX-License-Identifier: Apache-2.0
// Starts MPI in this process, and ends it. A build without MPI compiles
// startup/mpi_environment_absent.cpp instead of the .cpp file.
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

/// Initializes MPI, and lets the process end even if MPI would wait for a lost process. The only
/// object is in `this_job()`. Not thread-safe, except `has_company`.
class MpiEnvironment {
 public:
  /// Initializes MPI on this thread unless the program did. If Kolo has initialized MPI, it
  /// finalizes MPI only when the process exits, so that further sessions can start. Throws
  /// InvalidArgument if MPI was finalized already or offers less than MPI_THREAD_SERIALIZED.
  void start(int argc, char** argv);

  /// True if the program has initialized MPI on several processes, and has not finalized it.
  [[nodiscard]] static bool has_company();

  /// Throws InvalidArgument if MPI_COMM_WORLD contains only this process although its launcher has
  /// started several; BackendError if a process of the last session has ended.
  void require_whole_world() const;

  /// Registers `end`, to be called when the program finalizes MPI, while MPI still works. Does
  /// nothing if Kolo has initialized MPI, or on a second call.
  void before_end(void (*end)());

  /// Ends the job by MPI_Abort when Kolo or the program finalizes MPI. Call it if a process of the
  /// job has ended or does not respond, since MPI would wait for that process. `for_good`: MPI has
  /// requests in progress that it may complete into freed memory while it is finalized.
  void abort_at_exit(bool for_good);

  /// Called when a session of `ranks` ranks has started. If these are all ranks of the job, no
  /// process is lost, so earlier calls of `abort_at_exit` are revoked, except with `for_good`.
  void expect_no_abort(int ranks);

  /// Watches these processes when MPI is finalized, since MPI_Finalize waits for all of them. If
  /// one has ended before, the job is aborted; if one ends meanwhile, this process is ended.
  /// Replaces the processes of an earlier call.
  void watch_at_exit(std::vector<node::FileDescriptor> processes);

 private:
  struct Callbacks;

  [[nodiscard]] bool any_ends(int timeout_ms) const;
  [[nodiscard]] bool must_abort() const;
  void watch_while_finalizing() const;
  void finalize();

  // Atomic, because a thread of its own watches the other processes while MPI is finalized.
  std::atomic<bool> abort_instead_{false};
  std::atomic<bool> requests_are_left_{false};
  std::atomic<bool> finalized_here_{false};
  pid_t started_by_ = 0;  // the process in which Kolo has initialized MPI; 0: none
  void (*end_what_needs_mpi_)() = nullptr;
  std::vector<node::FileDescriptor> watched_{};
};

}  // namespace kolo::internal::session
