#include "session/mpi_environment.hpp"

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "node/mpi_error.hpp"
#include "session/fork_guard.hpp"

namespace kolo::session {
namespace {

std::atomic<bool> abort_instead{false};

void end_mpi() {
  if (forked()) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (abort_instead) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  MPI_Finalize();
}

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

}  // namespace

void start_mpi(int argc, char** argv) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0)
    throw InvalidArgument("MPI was finalized already: a process can start it only once");
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    // Kolo's own thread asks MPI for progress beside a thread that computes, often on the same
    // core: Open MPI is to give the core away where it finds nothing. The user's own choice stands.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    node::check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init");
    std::atexit(end_mpi);
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided < MPI_THREAD_SERIALIZED)
    throw InvalidArgument(
        std::string("MPI was initialised with ") + level_name(provided) +
        ", but Kolo has a thread of its own that calls MPI: initialise it by MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED, or MPI_THREAD_MULTIPLE if the program calls MPI itself during the "
        "session; or leave MPI to Kolo");
}

void abort_at_exit() { abort_instead = true; }

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Communicator Communicator::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  node::check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

Communicator::Communicator(Communicator&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

Communicator::~Communicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (comm_ != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&comm_);
}

}  // namespace kolo::session
