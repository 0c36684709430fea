// SPDX-License-Identifier: Apache-2.0
// The early end of a session on this rank: the rank leaves, or the session fails.
#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"
#include "session/engine/progress_engine.hpp"

namespace kolo::internal::session {
namespace {

/// Runs a step that announces a failure. The step may fail too, for example for lack of memory; the
/// operations must be finished nevertheless, because threads wait for them.
template <typename Work>
void ignoring_errors(const Work& work) noexcept {
  try {
    work();
  } catch (...) {  // only the first failure is reported
  }
}

}  // namespace

void ProgressEngine::leave(bool clean, const std::string& reason) {
  if (std::exchange(leaving_, true) || failed()) return;
  try {
    read_clock();
    submit();
    // The other ranks are told first: records and log messages may have to wait for a file system,
    // or for a lock of a thread that terminates the process.
    const auto pending = work_.pending();
    negotiator_.on_leave(reason);
    checks_.board().publish_end(
        {FailureKind::shut_down, clean ? "" : reason, "", RankSet::of(rank_)},
        /*alarm=*/false, clock_.real());
    if (clean) {
      recorder_.note(diagnostics::EventKind::leaving, reason, clock_.real());
    } else {
      recorder_.fault(diagnostics::EventKind::leaving, reason, pending, clock_.real());
      // Warn at once: ranks that compute learn of this only in their next call, perhaps much later.
      log(LogLevel::warning, "this rank leaves the session: " + reason);
    }
  } catch (...) {
    fail_session_with_current_exception();
  }
}

void ProgressEngine::fail_session_with_current_exception() noexcept {
  Failure failure{FailureKind::backend, "", "", RankSet::of(rank_)};
  ignoring_errors([&] { failure.message = message_of_current_exception(); });
  fail_session(std::move(failure));
}

void ProgressEngine::fail_session(Failure failure, int reported_by) noexcept {
  if (failed()) return fail_operations();
  if (failure.kind == FailureKind::stalled) {
    lost_a_process_ = true;
    ignoring_errors([&] {
      const RankSet awaited = checks_.awaited_for_long();
      if (!awaited.empty()) links_.report_awaited(awaited, failure.message);
    });
  }
  ignoring_errors([&] { log(LogLevel::critical, "the session cannot go on: " + failure.message); });
  ignoring_errors([&] {
    const Failure outside = as_seen_by_others(failure, rank_);
    checks_.board().publish_end(outside, /*alarm=*/true, clock_.real());
    propagate_failure(outside, reported_by);
  });
  ignoring_errors([&] {
    recorder_.fault(diagnostics::EventKind::fault, failure.message, work_.pending(), clock_.real());
  });
  left_requests_ = links_.mpi_has_batches();
  failure_ = std::move(failure);
  backend_.abandon();
  fail_operations();
  ignoring_errors([&] { links_.abandon(); });
}

void ProgressEngine::give_up(const Failure& why) noexcept {
  if (failed()) return;
  read_clock();
  fail_session(why);
}

/// Finishes all operations that this rank has submitted.
void ProgressEngine::fail_operations() noexcept {
  prepared_.execution.reset();
  for (const auto& [operation, since] : work_.take_all())
    if (operation != nullptr) finish(operation, failure_of(*operation));
  // Destroy the executions before the operations finish: the program may then free the tensors. The
  // network may still write into some of them, so the program should end its process.
  for (RunningBatch& batch : work_.running()) batch.execution.reset();
  for (const RunningBatch& batch : work_.running())
    for (detail::Operation* operation : batch.operations) finish(operation, failure_of(*operation));
  work_.running().clear();
  // Operations that were taken from the queue but not submitted when the error came. The recorder
  // does not know them, so `finish` cannot be used.
  for (detail::Operation*& taken : taken_) {
    detail::Operation* const operation = std::exchange(taken, nullptr);
    if (operation == nullptr) continue;
    ++finished_;
    queue_.release({&operation, 1}, /*failed=*/true);
    operation->finish(failure_of(*operation));
  }
}

/// Sends the failure to this rank's neighbors in the tree, except the one that reported it and
/// those of this host, which see it on the status board. So every edge between hosts carries it
/// once.
void ProgressEngine::propagate_failure(const Failure& failure, int reported_by) {
  for (const int peer : edges_) {
    if (peer == reported_by || checks_.board().shows(peer)) continue;
    try {
      transport_.send(peer, negotiation::encode(session_, failure));
    } catch (const std::exception& error) {
      log(LogLevel::warning,
          fmt::format("the failure could not be sent to rank {}: {}", peer, error.what()));
    }
  }
}

std::exception_ptr ProgressEngine::failure_of(const detail::Operation& operation) const noexcept {
  try {
    Failure failure = *failure_;
    const std::string what =
        negotiation::operation_in_words(operation.descriptor().type, operation.key());
    if (!failure.message.starts_with(what)) failure.message = what + ": " + failure.message;
    failure.tensor = operation.key().name;
    return to_exception(failure);
  } catch (...) {  // out of memory for the message: the bad_alloc becomes the error
    return std::current_exception();
  }
}

}  // namespace kolo::internal::session
