// SPDX-License-Identifier: Apache-2.0
// The launcher that has started this process, as the environment shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kolo::internal::session {

/// A job whose launcher gives ranks to processes but has no rendezvous server, so rank 0 serves.
struct ServerlessJob {
  int rank = 0;
  int size = 1;
  std::string host{};  // where rank 0 serves; loopback if all ranks are on one host
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

/// Without kolorun and a serverless job: true if this process is to be the only rank, without MPI.
/// That is so if KOLO_LAUNCHER=none, and in a build without MPI. Such a build throws as
/// `require_all_processes` does.
[[nodiscard]] bool is_single_process();

/// Throws InvalidArgument, which names the variables, if MPI sees this process alone although its
/// launcher has started several: each of them would train by itself. KOLO_LAUNCHER=mpi trusts MPI
/// even then. `mpi_processes`: the number of processes that MPI sees.
void require_all_processes(int mpi_processes);

}  // namespace kolo::internal::session
