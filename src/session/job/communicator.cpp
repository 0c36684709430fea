// SPDX-License-Identifier: Apache-2.0
#include "session/job/communicator.hpp"

#include "node/mpi_codes.hpp"

namespace kolo::internal::session {

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Communicator Communicator::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  node::check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
}

}  // namespace kolo::internal::session
