// SPDX-License-Identifier: Apache-2.0
// How operations come to the driver.
#include <utility>

#include "kolo/error.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {

OperationPtr Engine::submit(Submission&& submission, bool waits) {
  if (leaving_) throw ShutDown("this rank has left the session", submission.name, {topology_.rank});
  require_outside_pass(submission.name);
  presence_.submits();
  OperationPtr operation = queue_.push(*this, submission, waits);
  announce_submission(waits);
  return operation;
}

OperationPtr Engine::submit_again(const Repetition& repetition, bool waits) {
  if (leaving_ || in_pass()) return nullptr;
  presence_.submits();
  OperationPtr operation = queue_.push_again(repetition, waits);
  if (operation != nullptr) announce_submission(waits);
  return operation;
}

void Engine::announce_submission(bool waits) {
  // A thread that waits rings, or drives, in `wait_until`. During a short sleep of the session's
  // own thread no ring is needed: it finds the operation afterwards. But if a thread waits, that
  // one drives, and it may sleep for long.
  if (!waits && (!coalescing_ || waiters_ > 0)) bell().ring();
}

/// Otherwise the driver would wait for itself.
void Engine::require_outside_pass(const std::string& name) const {
  if (!in_pass()) return;
  throw InvalidArgument(
      "an allocator has called Kolo, and the operation that it allocates for cannot go on: call "
      "Kolo before or after that operation",
      name, {topology_.rank});
}

}  // namespace kolo::internal::session
