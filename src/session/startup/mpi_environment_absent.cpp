// SPDX-License-Identifier: Apache-2.0
// The functions of job/mpi_environment.cpp and startup/over_mpi.cpp for a build without MPI. Such a
// build never chooses a session over MPI.
#include "kolo/error.hpp"
#include "session/job/mpi_environment.hpp"
#include "session/startup/start.hpp"

namespace kolo::internal::session {

bool built_with_mpi() { return false; }
std::string mpi_library() { return {}; }
void MpiEnvironment::start(int /*argc*/, char** /*argv*/) {}
bool MpiEnvironment::has_company() { return false; }
void MpiEnvironment::require_whole_world() const {}
void MpiEnvironment::before_end(void (* /*end*/)()) {}
void MpiEnvironment::abort_at_exit(bool /*for_good*/) {}
void MpiEnvironment::expect_no_abort(int /*ranks*/) {}
void MpiEnvironment::watch_at_exit(std::vector<node::FileDescriptor> /*processes*/) {}

std::shared_ptr<Engine> start_engine_over_mpi(const StartArguments& /*arguments*/) {
  throw BackendError("this build of Kolo is without MPI");
}

}  // namespace kolo::internal::session
