// SPDX-License-Identifier: Apache-2.0
#include "session/job/mpi_environment.hpp"

#include <mpi.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/mpi_codes.hpp"
#include "session/job/launcher.hpp"

namespace kolo::internal::session {
namespace {

std::atomic<bool> abort_instead{false};
std::atomic<bool> requests_are_left{false};
std::atomic<bool> started_here{false};
std::atomic<bool> finalized_here{false};
pid_t started_by = 0;  // the process

void (*end_what_needs_mpi)() = nullptr;

/// Never destroyed, since a thread may still read them when statics are gone.
std::vector<node::FileDescriptor>& watched = *new std::vector<node::FileDescriptor>;

/// If the other process had finalized MPI, this one does so too within that time.
constexpr std::chrono::seconds time_to_finalize{5};

/// True once a watched process has ended. `timeout_ms`: -1: forever.
bool any_ends(int timeout_ms) {
  std::vector<pollfd> processes;
  for (const node::FileDescriptor& process : watched)
    processes.push_back({.fd = process.get(), .events = POLLIN, .revents = 0});
  return ::poll(processes.data(), processes.size(), timeout_ms) > 0;
}

/// MPI waits for all processes to finalize it; for one that is lost it would wait forever.
bool must_abort() { return abort_instead || any_ends(0); }

/// MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF.
int on_finalize(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* /*state*/) {
  end_what_needs_mpi();
  return must_abort() ? MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE) : MPI_SUCCESS;
}

void watch_while_finalizing() {
  if (watched.empty()) return;
  try {
    std::thread([] {
      if (!any_ends(-1)) return;
      std::this_thread::sleep_for(time_to_finalize);
      if (finalized_here) return;  // this process has only not ended yet
      log(LogLevel::critical, "the process of another rank ended before it had finalized MPI");
      std::_Exit(EXIT_FAILURE);
    }).detach();
  } catch (const std::system_error&) {
    log(LogLevel::debug, "no thread to watch whether other ranks finalize MPI");
  }
}

void end_mpi() {
  // A forked child runs this too, but MPI is its parent's.
  if (::getpid() != started_by) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (must_abort()) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  watch_while_finalizing();
  MPI_Finalize();
  finalized_here = true;
}

}  // namespace

bool built_with_mpi() { return true; }

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
    started_by = ::getpid();
    std::atexit(end_mpi);
    started_here = true;
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided < MPI_THREAD_SERIALIZED)
    throw InvalidArgument(
        std::string("MPI was initialized with MPI_THREAD_") +
        (provided == MPI_THREAD_SINGLE ? "SINGLE" : "FUNNELED") +
        ", but Kolo has a thread of its own that calls MPI: initialize it by MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED, or MPI_THREAD_MULTIPLE if the program calls MPI itself during the "
        "session; or leave MPI to Kolo");
}

bool mpi_has_company() {
  int initialized = 0;
  int finalized = 0;
  int size = 1;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 &&
         MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size > 1;
}

void require_whole_world() {
  if (any_ends(0))
    throw BackendError(
        "the process of another rank has ended, and a job started by mpirun cannot continue "
        "without it: terminate this process too. To continue after a loss, start the job with "
        "kolorun and --min-np");
  int size = 1;
  node::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  require_all_processes(size);
}

void before_mpi_ends(void (*end)()) {
  if (started_here || std::exchange(end_what_needs_mpi, end) != nullptr) return;
  int key = MPI_KEYVAL_INVALID;
  node::check_mpi(
      MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, /*state=*/nullptr),
      "MPI_Comm_create_keyval");
  node::check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, /*value=*/nullptr), "MPI_Comm_set_attr");
}

void abort_at_exit(bool for_good) {
  abort_instead = true;
  if (for_good) requests_are_left = true;
}

void expect_no_abort(int ranks) {
  int all = 0;
  if (MPI_Comm_size(MPI_COMM_WORLD, &all) == MPI_SUCCESS && ranks == all)
    abort_instead = requests_are_left.load();
}

void watch_at_exit(std::vector<node::FileDescriptor> processes) { watched = std::move(processes); }

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  return library.data();
}

}  // namespace kolo::internal::session
