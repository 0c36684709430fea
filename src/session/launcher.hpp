// SPDX-License-Identifier: Apache-2.0
// What the environment says of the launcher that has started this process.
#pragma once

namespace kolo::internal::session {

/// True if kolorun has started this process, so that sessions start without MPI.
/// KOLO_LAUNCHER=mpi: it was started to be alone, or for MPI. Throws InvalidArgument for another
/// value.
[[nodiscard]] bool started_by_kolorun();

/// `mpi_processes`: the number of processes that MPI sees. Throws InvalidArgument, which names the
/// variables, if MPI sees this process alone although its launcher has started several: each of
/// them would train by itself. KOLO_LAUNCHER=mpi trusts MPI, also if it sees one process.
void require_all_processes(int mpi_processes);

}  // namespace kolo::internal::session
