// The public face of sessions on a communicator: kolo/mpi.hpp.
#include "kolo/mpi.hpp"

#include "kolo/error.hpp"
#include "session/current.hpp"

namespace kolo {

void init(MPI_Comm comm, const SessionOptions& options) {
  if (comm == MPI_COMM_NULL) throw InvalidArgument("kolo::init: the communicator is MPI_COMM_NULL");
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0)
    throw InvalidArgument("kolo::init: MPI was not initialised, so there is no communicator");
  session::start_session({.comm = comm, .options = options});
}

}  // namespace kolo
