// SPDX-License-Identifier: Apache-2.0
// Finds out from environment variables which launcher has started this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kolo::internal::session {

/// A job whose launcher assigns ranks but runs no rendezvous server, so that rank 0 runs it.
struct ServerlessJob {
  int rank = 0;
  int size = 1;
  std::string host{};  // the server's address; loopback if all ranks are on one host
  std::uint16_t port = 0;

  [[nodiscard]] bool has_one_host() const { return host == "127.0.0.1"; }
};

/// True if kolorun has started this process and KOLO_LAUNCHER is not mpi or none. Throws
/// InvalidArgument for another value of KOLO_LAUNCHER, and for mpi in a build without MPI.
[[nodiscard]] bool started_by_kolorun();

/// The job that the variables of torchrun or srun describe. Empty without such variables, if they
/// describe several hosts but do not name the first one, if mpirun has set variables of its own,
/// and if KOLO_LAUNCHER is mpi or none. Throws InvalidArgument for values that cannot be used.
[[nodiscard]] std::optional<ServerlessJob> find_serverless_job();

/// True if this process is to be the only rank, and MPI is not used: with KOLO_LAUNCHER=none, and
/// in a build without MPI, where it throws as `require_all_processes` does. Call it only if there
/// is neither kolorun nor a serverless job.
[[nodiscard]] bool is_single_process();

/// Throws InvalidArgument, which names the variables, if MPI sees this process alone although its
/// launcher has started several: each of them would train by itself. KOLO_LAUNCHER=mpi trusts MPI
/// even then. `mpi_processes`: the number of processes that MPI sees.
void require_all_processes(int mpi_processes);

}  // namespace kolo::internal::session
