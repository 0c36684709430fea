// SPDX-License-Identifier: Apache-2.0
#include "session/job/mpi_environment.hpp"

#include <mpi.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"
#include "session/job/job.hpp"
#include "session/job/start_watch.hpp"

namespace kolo::internal::session {
namespace {

/// How long MPI_Finalize may take to return here after another process has ended. MPI_Finalize
/// returns on all processes at about the same time; if it takes longer here, the other process was
/// lost.
constexpr std::chrono::seconds time_to_finalize{5};

}  // namespace

/// The functions that MPI and the C library call.
struct MpiEnvironment::Callbacks {
  /// The delete callback of an attribute of MPI_COMM_SELF. MPI_Finalize first deletes these
  /// attributes, while MPI still works.
  static int on_finalize(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* environment) {
    const auto& mpi = *static_cast<MpiEnvironment*>(environment);
    mpi.end_what_needs_mpi_();
    return mpi.must_abort() ? MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE) : MPI_SUCCESS;
  }
  static void on_exit() { this_job().mpi.finalize(); }
};

// True if a watched process has ended. Waits up to `timeout_ms` for the end of one; -1: forever.
bool MpiEnvironment::any_ends(int timeout_ms) const {
  std::vector<pollfd> processes;
  for (const node::FileDescriptor& process : watched_)
    processes.push_back({.fd = process.get(), .events = POLLIN, .revents = 0});
  return ::poll(processes.data(), processes.size(), timeout_ms) > 0;
}

// True if MPI_Finalize would never return, because it waits for all processes and one is lost.
bool MpiEnvironment::must_abort() const { return abort_instead_ || any_ends(0); }

void MpiEnvironment::watch_while_finalizing() const {
  if (watched_.empty()) return;
  try {
    std::thread([this] {
      if (!any_ends(-1)) return;
      std::this_thread::sleep_for(time_to_finalize);
      if (finalized_here_) return;  // this process has finalized MPI, but has not ended yet
      log(LogLevel::critical, "the process of another rank ended before it had finalized MPI");
      std::_Exit(EXIT_FAILURE);
    }).detach();
  } catch (const std::system_error&) {
    log(LogLevel::debug, "no thread to watch whether other ranks finalize MPI");
  }
}

void MpiEnvironment::finalize() {
  // A forked child runs this exit handler too, but MPI belongs to its parent.
  if (::getpid() != started_by_) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (must_abort()) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  watch_while_finalizing();
  MPI_Finalize();
  finalized_here_ = true;
}

bool built_with_mpi() { return true; }

void MpiEnvironment::start(int argc, char** argv) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0)
    throw InvalidArgument("MPI was finalized already: a process can start it only once");
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    // Kolo's own thread polls MPI beside a thread that computes, often on the same core, so Open
    // MPI should yield the core when it finds nothing. A value that the user has set stays.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    const StartWatch watch;
    node::check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init");
    started_by_ = ::getpid();
    std::atexit(Callbacks::on_exit);
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

bool MpiEnvironment::has_company() {
  int initialized = 0;
  int finalized = 0;
  int size = 1;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 &&
         MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size > 1;
}

void MpiEnvironment::require_whole_world() const {
  if (any_ends(0))
    throw BackendError(
        "the process of another rank has ended, and a job started by mpirun cannot continue "
        "without it: terminate this process too. To continue after a loss, start the job with "
        "kolorun and --min-np");
  int size = 1;
  node::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  require_all_processes(size);
}

void MpiEnvironment::before_end(void (*end)()) {
  if (started_by_ != 0 || std::exchange(end_what_needs_mpi_, end) != nullptr) return;
  int key = MPI_KEYVAL_INVALID;
  node::check_mpi(
      MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, Callbacks::on_finalize, &key, /*state=*/this),
      "MPI_Comm_create_keyval");
  node::check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, /*value=*/nullptr), "MPI_Comm_set_attr");
}

void MpiEnvironment::abort_at_exit(bool for_good) {
  abort_instead_ = true;
  if (for_good) requests_are_left_ = true;
}

void MpiEnvironment::expect_no_abort(int ranks) {
  int all = 0;
  if (MPI_Comm_size(MPI_COMM_WORLD, &all) == MPI_SUCCESS && ranks == all)
    abort_instead_ = requests_are_left_.load();
}

void MpiEnvironment::watch_at_exit(std::vector<node::FileDescriptor> processes) {
  watched_ = std::move(processes);
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  return library.data();
}

}  // namespace kolo::internal::session
