// The public face of the session: kolo/session.hpp.
#include "kolo/session.hpp"

#include <mpi.h>

#include <array>
#include <exception>

#include "backend/gpu/runtime/runtime.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "kolo/version.hpp"
#include "session/current.hpp"

namespace kolo {

void init(const SessionOptions& options) { session::start_session({.options = options}); }

void init(int argc, char** argv, const SessionOptions& options) {
  session::start_session({.argc = argc, .argv = argv, .options = options});
}

void shutdown() { session::end_session(true, ""); }

bool initialized() noexcept { return session::find_engine() != nullptr; }

Session::Session() : Session(SessionOptions{}) {}

Session::Session(const SessionOptions& options) : Session(0, nullptr, options) {}

Session::Session(int argc, char** argv, const SessionOptions& options)
    : exceptions_at_start_(std::uncaught_exceptions()) {
  init(argc, argv, options);
}

Session::~Session() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  session::end_session(!unwinding, unwinding ? "an exception ended its session's scope" : "");
}

int rank() { return session::current_engine()->topology().rank; }
int size() { return session::current_engine()->topology().size; }
int local_rank() { return session::current_engine()->topology().local_rank; }
int local_size() { return session::current_engine()->topology().local_size; }
int cross_rank() { return session::current_engine()->topology().cross_rank; }
int cross_size() { return session::current_engine()->topology().cross_size; }
bool homogeneous() { return session::current_engine()->topology().homogeneous; }

std::string cpu_operations() { return session::current_engine()->data_path(); }

BuildInfo build_info() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  return {std::string(version), library.data(), backend::gpu::built_version(),
          backend::nccl::built_version()};
}

}  // namespace kolo
