// SPDX-License-Identifier: Apache-2.0
#include "session/api/current.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "session/fork_guard.hpp"
#include "session/mpi_environment.hpp"

namespace kolo::internal::session {
namespace {

/// The one global. Never destroyed, so that neither the end of the process nor that of a forked
/// child touches the thread of a session that is still open.
struct Current {
  std::mutex mutex;  // of `engine` and `stuck`
  std::shared_ptr<Engine> engine;
  // The same engine, for threads that only count themselves in `uses`. Such a thread counts first
  // and reads this afterwards; the thread that ends the session clears this first and reads `uses`
  // afterwards. Both are sequentially consistent, so either the one sees null or the other sees the
  // use.
  std::atomic<Engine*> usable{nullptr};
  std::atomic<int> uses{0};
  std::vector<std::shared_ptr<Engine>> stuck;  // still in use, so never destroyed
  std::mutex ending;                           // held while a session ends
  std::atomic<std::int64_t> joins{0};          // that completed
};
Current& current = *new Current;

/// False after a second: then a thread was stopped in the middle of a call.
bool uses_end() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (current.uses > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

constexpr const char* no_session =
    "there is no session: make a kolo::Session or call kolo::init first";

// The other ranks also learn of ends of the process that run no destructor.

std::terminate_handler next_handler = nullptr;

std::string describe_current_exception() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& error) {
    return std::string("an exception that nobody caught: ") + error.what();
  } catch (...) {
    return "an exception that nobody caught";
  }
  return "std::terminate was called";
}

[[noreturn]] void on_terminate() {
  // The job ends within seconds of this process: the other ranks must learn of it before.
  if (const std::shared_ptr<Engine> engine = find_engine())
    engine->leave_now(describe_current_exception(), std::chrono::seconds(1));
  if (next_handler != nullptr) next_handler();
  std::abort();
}

/// Once, and after MPI was started: exit handlers run in reverse order, and a session that is still
/// open when `exit` is called needs MPI to end.
void announce_departures() {
  static std::once_flag once;
  std::call_once(once, [] {
    next_handler = std::set_terminate(on_terminate);
    std::atexit([] { end_session(true, "its process exits"); });
  });
}

}  // namespace

std::shared_ptr<Engine> find_engine() noexcept {
  if (forked()) return nullptr;
  const std::lock_guard lock(current.mutex);
  return current.engine;
}

std::shared_ptr<Engine> current_engine() {
  require_not_forked();
  std::shared_ptr<Engine> found = find_engine();
  if (!found) throw NotInitialized(no_session);
  return found;
}

EngineInUse::EngineInUse(OperationType type, const std::string& name) {
  require_not_forked();
  ++current.uses;
  engine_ = current.usable;
  if (engine_ != nullptr) return;
  --current.uses;
  throw NotInitialized(fmt::format("{} \"{}\": {}", to_string(type), name, no_session), name);
}

EngineInUse::~EngineInUse() {
  if (engine_ != nullptr) --current.uses;
}

void count_join() noexcept { ++current.joins; }

std::int64_t completed_joins() noexcept { return current.joins; }

void start_session(const StartArguments& arguments) {
  require_not_forked();
  if (find_engine())
    throw InvalidArgument("a session is open already: a process has one at a time");
  watch_forks();
  std::shared_ptr<Engine> started = start_engine(arguments);
  announce_departures();
  before_mpi_ends([] { end_session(true, "its program finalizes MPI"); });
  const std::lock_guard lock(current.mutex);
  current.usable = started.get();
  current.engine = std::move(started);
}

void end_session(bool clean, const std::string& reason) {
  if (forked()) return;
  // A second thread returns when the session has ended.
  const std::lock_guard ending_lock(current.ending);
  const std::shared_ptr<Engine> found = find_engine();
  if (!found) return;
  found->shut_down(clean, reason);
  if (found->failed()) abort_at_exit();
  watch_at_exit(found->links().other_processes());
  current.usable = nullptr;  // before `uses` is read: see there
  const bool unused = uses_end();
  const std::lock_guard lock(current.mutex);
  if (!unused) current.stuck.push_back(current.engine);
  current.engine.reset();
}

}  // namespace kolo::internal::session
