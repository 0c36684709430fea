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

/// True if the GPU no longer uses the memory of an operation that is done.
bool is_over(const std::shared_ptr<backend::gpu::Completion>& batch) {
  return batch == nullptr || batch->settled();
}

void rethrow_late_error(const backend::gpu::Completion& batch) {
  if (batch.settled() && batch.error()) std::rethrow_exception(batch.error());
}

void synchronize_with_gpu(const Operation& operation) {
  const auto& batch = operation.completion();
  if (batch == nullptr) return;
  if (const std::shared_ptr<session::Engine> engine = operation.engine())
    engine->synchronize(batch, TimePoint::max());
  rethrow_late_error(*batch);
}

/// Orders the program's later work behind the results. The caller may use them on the current
/// stream; memory of LibTorch that is freed now is reused on the stream of the submission. A stream
/// that is being captured cannot wait for work outside of its graph, so the host waits.
void make_streams_wait(Operation& operation) {
  const auto& batch = operation.completion();
  if (batch == nullptr) return;
  const StreamInUse current = stream_in_use(batch->device());
  bool in_order = batch->make_wait(current.handle, current.lasts);
  if (const auto submitted_on = operation.stream(); submitted_on && *submitted_on != current.handle)
    in_order = batch->make_wait(*submitted_on, /*lasts=*/true) && in_order;
  if (!in_order) synchronize_with_gpu(operation);
  operation.drop_callbacks();
  rethrow_late_error(*batch);
}

}  // namespace

FutureBase::FutureBase(std::shared_ptr<Operation> operation) noexcept
    : operation_(std::move(operation)), exceptions_at_start_(std::uncaught_exceptions()) {}

FutureBase::FutureBase(FutureBase&& other) noexcept = default;

FutureBase& FutureBase::operator=(FutureBase&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  operation_ = std::move(other.operation_);
  in_order_ = other.in_order_;
  exceptions_at_start_ = other.exceptions_at_start_;
  return *this;
}

FutureBase::~FutureBase() { abandon(); }

void FutureBase::wait() {
  wait_until(operation_, TimePoint::max());
  make_streams_wait(*operation_);
  in_order_ = true;
}

void FutureBase::synchronize() {
  wait_until(operation_, TimePoint::max());
  synchronize_with_gpu(*operation_);
}

bool FutureBase::wait_for(std::chrono::duration<double> timeout) {
  constexpr std::chrono::duration<double> max = std::chrono::hours(24 * 365);
  if (!wait_until(operation_, std::chrono::steady_clock::now() +
                                  std::chrono::duration_cast<std::chrono::nanoseconds>(
                                      std::clamp(timeout, decltype(max)::zero(), max))))
    return false;
  make_streams_wait(*operation_);
  in_order_ = true;
  return true;
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

bool FutureBase::finished() const {
  return checked(operation_).done() && is_over(operation_->completion());
}

bool FutureBase::abandon() noexcept {
  const std::shared_ptr<Operation> operation = std::move(operation_);
  if (!operation || session::this_job().is_forked) return true;
  if (operation->done() && (in_order_ || is_over(operation->completion()))) {
    if (operation->completion() != nullptr) operation->drop_callbacks();
    return true;
  }
  const std::shared_ptr<session::Engine> engine = operation->engine();
  if (engine == nullptr) return true;
  if (engine->in_pass()) {  // the driver cannot wait; the queue keeps the operation alive
    log(LogLevel::warning, "an allocator has destroyed the future of " +
                               to_string(operation->key()) +
                               ", which is not done: its tensors must stay until it is");
    return false;
  }
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  // `pthread_exit` in the main thread sets `is_exiting` too, but the other threads then go on. So
  // only the main thread counts as exiting.
  const bool exiting = session::this_job().is_exiting && is_main_thread();
  if (unwinding || exiting)
    engine->wait_or_leave(*operation, unwinding ? "an exception" : "the exit of the process");
  engine->wait(*operation, TimePoint::max());
  // The GPU may still use the memory, and no stream waits for it.
  if (const auto batch = operation->completion()) {
    engine->synchronize(batch, TimePoint::max());
    operation->drop_callbacks();
  }
  return true;
}

}  // namespace kolo::detail
