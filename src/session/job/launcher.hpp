// SPDX-License-Identifier: Apache-2.0
// What the environment says of the launcher that has started this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kolo::internal::session {

/// Processes that know their ranks, but have no rendezvous server: rank 0 is to serve.
struct ServerlessJob {
  int rank = 0;
  int size = 1;
  std::string host{};  // where it serves; loopback if all are on one host
  std::uint16_t port = 0;

  [[nodiscard]] bool has_one_host() const { return host == "127.0.0.1"; }
};

/// True if kolorun has started this process. KOLO_LAUNCHER=mpi or none: as if it had not. Throws
/// InvalidArgument for another value, and for mpi in a build without MPI.
[[nodiscard]] bool started_by_kolorun();

/// From the variables of torchrun or srun; none if there are none, if they tell of several hosts
/// but not of the first one, or if mpirun has variables of its own. KOLO_LAUNCHER=mpi or none:
/// none.
[[nodiscard]] std::optional<ServerlessJob> find_serverless_job();

/// Where neither of these is the case: true if this process is to be the only rank, without MPI:
/// by KOLO_LAUNCHER=none, and in a build without MPI. There it throws as `require_all_processes`.
[[nodiscard]] bool is_single_process();

/// `mpi_processes`: the number of processes that MPI sees. Throws InvalidArgument, which names the
/// variables, if MPI sees this process alone although its launcher has started several: each of
/// them would train by itself. KOLO_LAUNCHER=mpi trusts MPI, also if it sees one process.
void require_all_processes(int mpi_processes);

}  // namespace kolo::internal::session
