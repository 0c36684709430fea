// SPDX-License-Identifier: Apache-2.0
// Implements kolo/future.hpp.
#include "kolo/future.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "session/engine/engine.hpp"
#include "session/job/job.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

bool is_main_thread() { return ::gettid() == ::getpid(); }

/// Notices the exit of the process before any static object, such as a global future, is destroyed:
/// `exit` first destroys the thread_local objects of its thread. If another thread has loaded this
/// library, only that thread ends.
struct SeesExit {
  SeesExit() = default;
  ~SeesExit() {
    if (is_main_thread()) session::this_job().is_exiting = true;
  }
  SeesExit& operator=(SeesExit&&) = delete;
};
[[maybe_unused]] const bool main_thread_sees_exit = [] {
  thread_local const SeesExit at_exit;
  return true;
}();

using TimePoint = std::chrono::steady_clock::time_point;

const Operation& checked(const std::shared_ptr<Operation>& operation) {
  if (!operation)
    throw InvalidArgument(
        "this future has no operation: it was moved from, or its value was taken");
  return *operation;
}

/// Waits for the operation, and throws its error. Returns false if it is not done at the deadline.
bool wait_until(const std::shared_ptr<Operation>& waited, TimePoint deadline) {
  session::this_job().require_not_forked();
  const Operation& operation = checked(waited);
  if (!operation.done()) {
    const std::shared_ptr<session::Engine> engine = operation.engine();
    if (engine != nullptr && !engine->wait(operation, deadline)) return false;
    if (!operation.done()) throw ShutDown("the session of this operation has ended");
  }
  if (operation.error()) std::rethrow_exception(operation.error());
  return true;
}

}  // namespace

FutureBase::FutureBase(std::shared_ptr<Operation> operation) noexcept
    : operation_(std::move(operation)), exceptions_at_start_(std::uncaught_exceptions()) {}

FutureBase::FutureBase(FutureBase&& other) noexcept = default;

FutureBase& FutureBase::operator=(FutureBase&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  operation_ = std::move(other.operation_);
  exceptions_at_start_ = other.exceptions_at_start_;
  return *this;
}

FutureBase::~FutureBase() { abandon(); }

void FutureBase::wait() { wait_until(operation_, TimePoint::max()); }

bool FutureBase::wait_for(std::chrono::duration<double> timeout) {
  constexpr std::chrono::duration<double> max = std::chrono::hours(24 * 365);
  return wait_until(operation_, std::chrono::steady_clock::now() +
                                    std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::clamp(timeout, decltype(max)::zero(), max)));
}

bool FutureBase::ready() const { return checked(operation_).done(); }

void FutureBase::wait_for_any(std::span<const FutureBase* const> futures) {
  session::this_job().require_not_forked();
  const auto is_ready = [](const FutureBase* future) { return future->ready(); };
  if (futures.empty() || std::ranges::any_of(futures, is_ready)) return;
  const std::shared_ptr<session::Engine> engine = futures.front()->operation_->engine();
  if (engine != nullptr)
    engine->wait_for_any([&] { return std::ranges::any_of(futures, is_ready); });
}

bool FutureBase::abandon() noexcept {
  const std::shared_ptr<Operation> operation = std::move(operation_);
  if (!operation || operation->done() || session::this_job().is_forked) return true;
  const std::shared_ptr<session::Engine> engine = operation->engine();
  if (engine == nullptr) return true;
  if (engine->in_pass()) {  // the driver cannot wait; the queue keeps the operation alive
    log(LogLevel::warning, "an allocator has destroyed the future of " +
                               to_string(operation->key()) +
                               ", which is not done: its tensors must stay until it is");
    return false;
  }
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  // After `pthread_exit` in the main thread the other threads go on.
  const bool exiting = session::this_job().is_exiting && is_main_thread();
  if (unwinding || exiting)
    engine->wait_or_leave(*operation, unwinding ? "an exception" : "the exit of the process");
  engine->wait(*operation, TimePoint::max());
  return true;
}

}  // namespace kolo::detail
