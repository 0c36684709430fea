// SPDX-License-Identifier: Apache-2.0
// How this rank leaves the session: by an exception, by the end of its process, or by shutdown.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "negotiation/stall/explain.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {
namespace {

// A rank that exits, or that an exception unwinds, lets the others do their part in a pending
// operation for so long, unless a warning is due sooner. Then it leaves: they may be waiting for
// it.
constexpr std::chrono::nanoseconds max_unwinding = std::chrono::seconds(10);

}  // namespace

void Engine::wait_or_leave(const detail::Operation& operation, std::string_view cause) {
  const std::chrono::nanoseconds patient =
      stall_warning_.count() > 0 ? std::min(stall_warning_, max_unwinding) : max_unwinding;
  if (wait(operation, std::chrono::steady_clock::now() + patient)) return;
  const std::string reason =
      fmt::format("{} destroyed the future of {}, which was not done {} s later", cause,
                  negotiation::operation_in_words(operation.descriptor().type, operation.key()),
                  std::chrono::duration<double>(patient).count());
  log(LogLevel::warning, "this rank leaves the session: " + reason);
  leave(false, reason);
}

void Engine::leave(bool clean, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (leaving_) return;
  left_clean_ = clean;
  reason_of_leaving_ = reason;
  leaving_ = true;  // publishes both to the driver, which reads this first and without the lock
  bell().ring();
}

void Engine::give_up(Failure why) {
  const std::lock_guard lock(mutex_);
  if (giving_up_) return;
  reason_to_give_up_ = std::move(why);
  giving_up_ = true;  // publishes the reason, as `leave` does
  bell().ring();
}

void Engine::leave_now(const std::string& reason, std::chrono::nanoseconds timeout) {
  leave(false, reason);
  if (in_pass()) return;  // an allocator ends the process: nobody else can drive
  wait_until([&] { return departed_.load(); }, std::chrono::steady_clock::now() + timeout);
}

void Engine::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();  // it may not have been started
  }
  bell().wake(node::Listener::thread);  // not `ring`: it may not be the listener
  thread_.join();
}

void Engine::shut_down(bool clean, const std::string& reason) {
  require_outside_pass("");  // first: a rank that has left cannot come back
  leave(clean, reason);
  const std::chrono::nanoseconds patient =
      stall_warning_.count() > 0 ? stall_warning_ : std::chrono::nanoseconds(std::chrono::hours(1));
  while (!wait_until([&] { return ended_.load(); }, std::chrono::steady_clock::now() + patient))
    log(LogLevel::warning,
        "this rank has left the session and still waits for other ranks to leave it:" +
            progress_engine_.describe_others());
  stop_thread();
  recorder_.end();
  write_suppressed();
  // A thread may have submitted it while the last pass ran.
  for (detail::Operation* operation : queue_.close())
    operation->finish(std::make_exception_ptr(
        ShutDown("this rank has left the session", operation->key().name, {topology_.rank})));
}

}  // namespace kolo::internal::session
