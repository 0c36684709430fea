// SPDX-License-Identifier: Apache-2.0
// The ends of batches and operations, and the early end of a session on this rank: the rank leaves,
// or the session fails.
#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
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

/// Must be called before the operations finish, because the user may destroy finished ones.
ProgressEngine::TimePoint ProgressEngine::record_end(const RunningBatch& running) {
  const auto times = recorder_.times_of(running.sequence, clock_.real());
  for (const detail::Operation* operation : running.operations)
    recorder_.finished(operation->tag(), running.sequence, times);
  return times.done;
}

/// A batch that is launched gates nothing any more: the GPU executes later batches after it.
void ProgressEngine::finish_batch(RunningBatch&& done, bool launched, TimePoint at) {
  std::shared_ptr<backend::gpu::Completion> completion;
  if (launched) {
    completion = done.execution->completion();
    std::int64_t bytes = 0;
    for (const detail::Operation* operation : done.operations) bytes += operation->tag().bytes;
    launched_.add({std::move(done.execution), completion, describe(done),
                   done.operations.front()->key().name, done.sequence, bytes, clock_.now()});
  } else {
    recorder_.batch_done(done.sequence, at);
  }
  queue_.release(done.operations);
  for (detail::Operation* operation : done.operations) {
    if (completion != nullptr &&
        completion->kind() == backend::gpu::Completion::Kind::before_graph &&
        !operation->key().name.empty())
      launched_.note_prepared_for_graphs(operation->key().set, operation->key().name,
                                         operation->descriptor().tensors);
    operation->set_completion(completion);
    operation->finish(nullptr);
  }
  finished_ += done.operations.size();
  negotiator_.on_done(done.set);
}

/// Notices the ends of launched batches. One look a pass: the GPU executes them in order. A batch
/// that has failed ends the session, since its operations are done.
bool ProgressEngine::settle_launched() {
  bool moved = false;
  std::deque<LaunchedBatch>& batches = launched_.batches();
  while (!batches.empty()) {
    LaunchedBatch& oldest = batches.front();
    try {
      if (oldest.execution->step() != backend::Progress::done) break;
    } catch (...) {
      throw BackendError(oldest.what + ": " + message_of_current_exception());
    }
    recorder_.batch_done(oldest.sequence, clock_.real());
    launched_.settle_oldest(nullptr, clock_.now());
    moved = true;
  }
  return moved;
}

void ProgressEngine::finish(detail::Operation* operation, std::exception_ptr error,
                            std::int64_t answer) {
  if (error != nullptr) {
    recorder_.failed(operation->tag(), clock_.real());
  } else {
    recorder_.answered(operation->tag(), clock_.real());
  }
  ++finished_;
  queue_.release({&operation, 1}, error != nullptr);
  operation->finish(std::move(error), answer);
}

void ProgressEngine::leave(bool clean, const std::string& reason) {
  if (std::exchange(leaving_, true) || failed()) return;
  try {
    read_clock();
    submit();
    if (clean) {
      recorder_.note(diagnostics::EventKind::leaving, reason, clock_.real());
    } else {
      recorder_.fault(diagnostics::EventKind::leaving, reason, work_.pending(), clock_.real());
      // Warn at once: ranks that compute learn of this only in their next call, perhaps much later.
      log(LogLevel::warning, "this rank leaves the session: " + reason);
    }
    negotiator_.on_leave(reason);
    checks_.board().publish_end(
        {FailureKind::shut_down, clean ? "" : reason, "", RankSet::of(rank_)},
        /*alarm=*/false, clock_.real());
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
  ignoring_errors([&] { report_missed(failure, work_.oldest()); });
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

/// Tells the job's server, the first time only, which ranks this rank misses, and in which
/// operation. A failure that this rank shares with others has its cause here too.
void ProgressEngine::report_missed(const Failure& failure, const detail::Operation* operation) {
  if (has_missed_ranks_ || !is_of_others(failure.kind) || failure.ranks.empty()) return;
  if (failure.ranks.contains(rank_)) return;
  links_.report_missed(failure.ranks, operation == nullptr
                                          ? ""
                                          : negotiation::operation_in_words(
                                                operation->descriptor().type, operation->key()));
}

void ProgressEngine::give_up(const Failure& why) noexcept {
  if (failed()) return;
  read_clock();
  fail_session(why);
}

/// Finishes all operations that this rank has submitted.
void ProgressEngine::fail_operations() noexcept {
  prepared_.execution.reset();
  // First, so that a thread whose operation fails also finds that those before it have failed.
  while (!launched_.batches().empty())
    launched_.settle_oldest(failure_of(launched_.batches().front()), clock_.now());
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

std::exception_ptr ProgressEngine::failure_of(const std::string& what,
                                              const std::string& tensor) const {
  Failure failure = *failure_;
  if (!failure.message.starts_with(what)) failure.message = what + ": " + failure.message;
  failure.tensor = tensor;
  return to_exception(failure);
}

std::exception_ptr ProgressEngine::failure_of(const detail::Operation& operation) const noexcept {
  try {
    return failure_of(negotiation::operation_in_words(operation.descriptor().type, operation.key()),
                      operation.key().name);
  } catch (...) {  // out of memory for the message: the bad_alloc becomes the error
    return std::current_exception();
  }
}

std::exception_ptr ProgressEngine::failure_of(const LaunchedBatch& batch) const noexcept {
  try {
    return failure_of(batch.what, batch.tensor);
  } catch (...) {  // as above
    return std::current_exception();
  }
}

}  // namespace kolo::internal::session
