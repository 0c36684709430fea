#include "session/departure.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "session/current.hpp"

namespace kolo::session {
namespace {

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
  // The job ends within seconds of this process: tell the others while it lasts, but not for long.
  if (const std::shared_ptr<Engine> engine = find_engine())
    engine->leave_now(describe_current_exception(), std::chrono::seconds(1));
  if (next_handler != nullptr) next_handler();
  std::abort();
}

void on_exit() { end_session(true, "its process exits"); }

}  // namespace

void announce_departures() {
  static std::once_flag once;
  std::call_once(once, [] {
    next_handler = std::set_terminate(on_terminate);
    std::atexit(on_exit);
  });
}

}  // namespace kolo::session
