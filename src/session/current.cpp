#include "session/current.hpp"

#include <mutex>
#include <utility>

#include "kolo/error.hpp"
#include "session/departure.hpp"
#include "session/mpi_environment.hpp"
#include "session/start.hpp"

namespace kolo::session {
namespace {

std::mutex mutex;                // of what follows
std::shared_ptr<Engine> engine;  // NOLINT: the one global
std::mutex ending;               // held while a session ends

}  // namespace

std::shared_ptr<Engine> find_engine() noexcept {
  const std::lock_guard lock(mutex);
  return engine;
}

std::shared_ptr<Engine> current_engine() {
  std::shared_ptr<Engine> found = find_engine();
  if (!found)
    throw NotInitialized("there is no session: make a kolo::Session or call kolo::init first");
  return found;
}

void start_session(int argc, char** argv, const SessionOptions& options) {
  if (find_engine())
    throw InvalidArgument("a session is open already: a process has one at a time");
  std::shared_ptr<Engine> started = start_engine(argc, argv, options);
  announce_departures();
  const std::lock_guard lock(mutex);
  engine = std::move(started);
}

void end_session(bool clean, const std::string& reason) {
  const std::lock_guard ending_lock(ending);  // a second thread returns when the session has ended
  const std::shared_ptr<Engine> found = find_engine();
  if (!found) return;
  found->shut_down(clean, reason);
  if (found->failed()) abort_at_exit();
  const std::lock_guard lock(mutex);
  engine.reset();
}

}  // namespace kolo::session
