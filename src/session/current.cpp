#include "session/current.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "session/departure.hpp"
#include "session/fork_guard.hpp"
#include "session/mpi_environment.hpp"

namespace kolo::session {
namespace {

/// The one global. Never destroyed, so that neither the end of the process nor that of a forked
/// child touches the thread of a session that is still open.
struct Current {
  std::mutex mutex;  // of `engine`
  std::shared_ptr<Engine> engine;
  std::atomic<Engine*> usable{nullptr};  // the same
  std::atomic<int> uses{0};
  std::vector<std::shared_ptr<Engine>> stuck;  // that are in use for good
  std::mutex ending;                           // held while a session ends
};
Current& current = *new Current;

}  // namespace

std::shared_ptr<Engine> find_engine() noexcept {
  if (forked()) return nullptr;
  const std::lock_guard lock(current.mutex);
  return current.engine;
}

namespace {

/// False if it takes long: then a thread was stopped amid a call.
bool uses_end() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (current.uses > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

[[noreturn]] void refuse_without_session() {
  throw NotInitialized("there is no session: make a kolo::Session or call kolo::init first");
}

}  // namespace

std::shared_ptr<Engine> current_engine() {
  require_not_forked();
  std::shared_ptr<Engine> found = find_engine();
  if (!found) refuse_without_session();
  return found;
}

EngineInUse::EngineInUse() {
  require_not_forked();
  ++current.uses;
  engine_ = current.usable;
  if (engine_ != nullptr) return;
  --current.uses;
  refuse_without_session();
}

EngineInUse::~EngineInUse() {
  if (engine_ != nullptr) --current.uses;
}

void start_session(const StartArguments& arguments) {
  require_not_forked();
  if (find_engine())
    throw InvalidArgument("a session is open already: a process has one at a time");
  watch_forks();
  std::shared_ptr<Engine> started = start_engine(arguments);
  announce_departures();
  before_mpi_ends([] { end_session(true, "its program finalises MPI"); });
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
  watch_at_exit(found->other_processes());
  current.usable = nullptr;
  const bool unused = uses_end();
  const std::lock_guard lock(current.mutex);
  if (!unused) current.stuck.push_back(current.engine);
  current.engine.reset();
}

}  // namespace kolo::session
