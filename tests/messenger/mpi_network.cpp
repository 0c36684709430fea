// SPDX-License-Identifier: Apache-2.0
// The messenger under test is MPI's; each rank is a process.
#include "messenger/mpi_messenger.hpp"
#include "network.hpp"

namespace kolo::internal::messenger {

void on_each_rank(const std::function<void(Messenger&)>& body) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  {
    MpiMessenger messenger(comm);
    body(messenger);
    messenger.close({});
  }
  MPI_Barrier(comm);
  MPI_Comm_free(&comm);
}

}  // namespace kolo::internal::messenger
