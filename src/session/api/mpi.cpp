// SPDX-License-Identifier: Apache-2.0
// Implements kolo/mpi.hpp.
#include "kolo/mpi.hpp"

#include <memory>

#include "kolo/error.hpp"
#include "session/api/current.hpp"
#include "session/job/mpi_rendezvous.hpp"

namespace kolo {

using namespace internal;

void init(MPI_Comm comm, const SessionOptions& options) {
  if (comm == MPI_COMM_NULL) throw InvalidArgument("kolo::init: the communicator is MPI_COMM_NULL");
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0)
    throw InvalidArgument("kolo::init: MPI was not initialized, so there is no communicator");
  session::start_session({.communicator = std::make_shared<session::GivenCommunicator>(
                              session::GivenCommunicator{comm}),
                          .options = options});
}

}  // namespace kolo
