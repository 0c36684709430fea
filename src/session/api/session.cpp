// SPDX-License-Identifier: Apache-2.0
// Implements kolo/session.hpp, kolo/diagnostics.hpp and kolo/shared_memory.hpp.
#include "kolo/session.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/shared_memory.hpp"
#include "kolo/version.hpp"
#include "session/api/current.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo {

using namespace internal;

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

int rank() { return session::current_engine("kolo::rank")->topology().rank; }
int size() { return session::current_engine("kolo::size")->topology().size; }
int local_rank() { return session::current_engine("kolo::local_rank")->topology().local_rank; }
int local_size() { return session::current_engine("kolo::local_size")->topology().local_size; }
int cross_rank() { return session::current_engine("kolo::cross_rank")->topology().cross_rank; }
int cross_size() { return session::current_engine("kolo::cross_size")->topology().cross_size; }
bool homogeneous() { return session::current_engine("kolo::homogeneous")->topology().homogeneous; }

std::string cpu_operations() {
  return session::current_engine("kolo::cpu_operations")->links().data_path();
}

BuildInfo build_info() {
  return {std::string(version), session::mpi_library(), backend::gpu::built_version(),
          backend::nccl::built_version()};
}

Statistics statistics() { return session::current_engine("kolo::statistics")->statistics(); }

void start_timeline(const std::string& path) {
  const std::shared_ptr<session::Engine> engine = session::current_engine("kolo::start_timeline");
  if (path.empty()) throw InvalidArgument("kolo::start_timeline: the path is empty");
  if (auto timeline = diagnostics::open_timeline(path, engine->topology().rank))
    engine->start_timeline(std::move(timeline));
}

void stop_timeline() { session::current_engine("kolo::stop_timeline")->stop_timeline(); }

std::string write_flight_record(const std::string& path) {
  return session::current_engine("kolo::write_flight_record")->write_flight_record(path);
}

namespace detail {

std::shared_ptr<node::SharedHeap> shared_heap() {
  return session::current_engine("kolo::SharedAllocator")->links().heap();
}

void* allocate_shared(const std::shared_ptr<node::SharedHeap>& heap, std::size_t bytes) {
  if (!heap) return nullptr;
  bytes = std::max<std::size_t>(bytes, 1);
  void* const block = heap->allocate(bytes);
  // The heap is limited to this rank's share of the host's memory. If it is full, take other
  // memory: other ranks may use less than their shares.
  return block != nullptr ? block : node::allocate_reserved(bytes);
}

bool deallocate_shared(const std::shared_ptr<node::SharedHeap>& heap, void* block,
                       std::size_t bytes) noexcept {
  if (!heap || !heap->contains(block)) return false;
  heap->deallocate(block, std::max<std::size_t>(bytes, 1));
  return true;
}

}  // namespace detail

}  // namespace kolo
