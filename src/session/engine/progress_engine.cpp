// SPDX-License-Identifier: Apache-2.0
#include "session/engine/progress_engine.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::session {
namespace {

/// As records have it.
diagnostics::Subject subject_of(const detail::Operation& operation) {
  const Key& key = operation.key();
  diagnostics::Subject subject{
      .name = key.name, .number = key.number, .set = key.set, .descriptor = operation.descriptor()};
  if (key.reserved())
    subject.name = key.number == join_number ? "(join)" : "(change of process sets)";
  for (const backend::BatchTensor& member : operation.members())
    subject.bytes += member.elements() * signed_size_of(member.dtype);
  return subject;
}

}  // namespace

ProgressEngine::ProgressEngine(const negotiation::NegotiatorOptions& options, OperationQueue& queue,
                               Links& links, backend::Backend& backend,
                               diagnostics::Recorder& recording, const Presence& presence)
    : negotiator_(options),
      queue_(queue),
      links_(links),
      backend_(backend),
      transport_(links.transport()),
      recorder_(recording),
      session_(options.session),
      presence_(presence),
      rank_(options.place.rank),
      ranks_(options.place.ranks),
      parent_(options.place.parent),
      board_(links.seats(), rank_, ranks_),
      heartbeat_(parent_ >= 0 && board_.shows(parent_) ? -1 : parent_, options.stall_warning,
                 options.stall_shutdown, std::chrono::steady_clock::now()),
      watch_(board_, rank_, {options.stall_warning, options.stall_shutdown}) {
  for (const negotiation::Child& child : options.place.children) {
    edges_.push_back(child.rank);
    if (!board_.shows(child.rank)) far_children_.push_back(child.rank);
  }
  if (parent_ >= 0) edges_.push_back(parent_);
}

bool ProgressEngine::progress() {
  try {
    now_ = std::chrono::steady_clock::now();
    negotiator_.set_time(now_);
    if (recorder_.asked_by_signal()) recorder_.write_asked_for(pending());
    bool moved = submit();
    if (failed()) return moved;
    moved |= receive();
    if (failed()) return true;
    moved |= negotiate();
    moved |= execute();
    if (now_ >= next_checks_ || board_.take_alarm()) {
      periodic_checks();
      if (!failed()) moved |= negotiate();
    }
    return moved || failed();
  } catch (const std::exception& error) {
    fail_session(error);
    return true;
  }
}

bool ProgressEngine::receive() {
  std::optional<ReportedFailure> reported;
  const bool moved = transport_.poll(
      [&](int peer, std::span<const std::byte> bytes) { receive(peer, bytes, reported); });
  // A rank that has failed sends the reason before its connection ends, so the reason goes first.
  const Failure* loss = transport_.loss();
  if (reported) {
    fail_session(std::move(reported->failure), reported->reported_by);
  } else if (loss != nullptr && !negotiator_.ended()) {
    fail_session(*loss);
  }
  return moved;
}

void ProgressEngine::receive(int peer, std::span<const std::byte> bytes,
                             std::optional<ReportedFailure>& reported) {
  recorder_.received(bytes.size());
  negotiation::ControlMessage message = negotiation::decode(bytes, ranks_);
  if (message.session != session_) return;
  if (auto* failure = std::get_if<Failure>(&message.body)) {
    if (!reported) reported = {std::move(*failure), peer};
  } else if (const auto* heartbeat = std::get_if<negotiation::Heartbeat>(&message.body)) {
    heartbeat_.receive(*heartbeat, now_);
  } else {
    negotiator_.on_message(peer, std::move(message.body), bytes);
  }
}

/// Down the tree only: a stopped rank below shows by its missing messages. Never after the end of
/// the log: the ranks below may be gone.
void ProgressEngine::send_heartbeats() {
  const std::optional<negotiation::Heartbeat> heartbeat = heartbeat_.next(now_);
  if (!heartbeat) return;
  for (const int child : far_children_)
    transport_.send(child, negotiation::encode(session_, *heartbeat));
}

bool ProgressEngine::submit() {
  queue_.take(taken_);
  for (detail::Operation* operation : taken_) {
    operation->tag() = recorder_.submitted(subject_of(*operation), now_);
    if (failed()) {
      finish(operation, failure_of(*operation));
      continue;
    }
    ++submissions_;
    negotiator_.on_submit(keep(operation), operation->key(), operation->descriptor());
  }
  if (!taken_.empty()) submitted_at_ = now_;
  return !taken_.empty();
}

/// Tickets are given again, so that a steady stream of operations allocates nothing.
negotiation::Ticket ProgressEngine::keep(detail::Operation* operation) {
  if (free_tickets_.empty()) {
    negotiating_.push_back({operation, now_});
    return negotiating_.size() - 1;
  }
  const negotiation::Ticket ticket = free_tickets_.back();
  free_tickets_.pop_back();
  negotiating_[ticket] = {operation, now_};
  return ticket;
}

bool ProgressEngine::negotiate() {
  const negotiation::Actions actions = negotiator_.take();
  record_faults(actions);
  for (const negotiation::Send& send : actions.sends) {
    recorder_.sent(send.message.size());
    transport_.send(send.peer, send.message);
  }
  for (const negotiation::Execute& execute : actions.executes) start(execute);
  for (const negotiation::Fail& fail : actions.fails)
    finish(take_operation(fail.ticket), to_exception(fail.failure));
  for (const negotiation::Answer& answer : actions.answers)
    finish(take_operation(answer.ticket), nullptr, answer.value);
  for (const std::string& report : actions.reports) {
    recorder_.note(diagnostics::EventKind::stall, report, now_);
    log_limited(LogLevel::warning, "stall reports", report);
  }
  recorder_.plans(negotiator_.plans(), negotiator_.replayed(), negotiator_.in_plan(), now_);
  if (!actions.questions.empty() && board_.is_lowest())
    negotiator_.on_answer(actions.questions, board_.read_all(now_));
  if (std::exchange(plans_, negotiator_.plans()) != negotiator_.plans())
    log(LogLevel::debug, fmt::format("plan {} begins; {} batches came from plans before", plans_,
                                     negotiator_.replayed()));
  return !actions.empty();
}

template <typename Work>
auto ProgressEngine::of_batch(const Running& running, const Work& work) const {
  try {
    return work();
  } catch (const std::exception& error) {
    throw BackendError(describe(running) + ": " + error.what());
  }
}

void ProgressEngine::start(const negotiation::Execute& execute) {
  backend::Batch batch{.kind = execute.kind,
                       .tensors = {},
                       .set = execute.members.to_vector(),
                       .ranks = execute.members.without(execute.absent).to_vector(),
                       .divisor = 1,
                       .sequence = execute.sequence};
  if (execute.kind.op == ReduceOp::average) {
    const bool over_all = execute.kind.average_over == AverageOver::all;
    batch.divisor = static_cast<std::int64_t>(over_all ? batch.set.size() : batch.ranks.size());
  }
  Running running{nullptr, {}, execute.set, execute.sequence, now_};
  running.operations.reserve(execute.tickets.size());
  batch.tensors.reserve(execute.tickets.size());
  for (const negotiation::Ticket ticket : execute.tickets) {
    running.operations.push_back(take_operation(ticket));
    for (const backend::BatchTensor& member : running.operations.back()->members())
      batch.tensors.push_back(&member);
  }
  record_start(batch, running);
  running_.push_back(std::move(running));  // first, so that an error below fails its operations too
  running_.back().execution =
      of_batch(running_.back(), [&] { return backend_.start(std::move(batch)); });
}

bool ProgressEngine::execute() {
  bool moved = false;
  for (auto running = running_.begin(); running != running_.end();) {
    const backend::Progress progress =
        of_batch(*running, [&] { return running->execution->step(); });
    if (progress != backend::Progress::waiting) {
      moved = true;
      running->moved_at = now_;
    }
    if (progress != backend::Progress::done) {
      ++running;
      continue;
    }
    record_end(*running);
    queue_.release(running->operations);
    for (detail::Operation* operation : running->operations) operation->finish(nullptr);
    finished_ += running->operations.size();
    negotiator_.on_done(running->set);
    running = running_.erase(running);
  }
  return moved;
}

void ProgressEngine::record_start(backend::Batch& batch, const Running& running) {
  std::int64_t bytes = 0;
  for (const detail::Operation* operation : running.operations) bytes += operation->tag().bytes;
  recorder_.batch_started(
      {.number = batch.sequence,
       .set = running.set,
       .type = batch.kind.type,
       .dtype = batch.tensors.empty() ? DType::u8 : batch.tensors.front()->dtype,
       .operations = running.operations.size(),
       .bytes = bytes},
      now_);
  if (recorder_.wants_phases()) batch.observer = &recorder_;
}

/// Before its operations are finished: afterwards they may be gone.
void ProgressEngine::record_end(const Running& running) {
  const auto times = recorder_.times_of(running.sequence, now_);
  for (const detail::Operation* operation : running.operations)
    recorder_.finished(operation->tag(), running.sequence, times);
  recorder_.batch_done(running.sequence, times.done);
}

/// Before the operations fail: the record lists them as pending.
void ProgressEngine::record_faults(const negotiation::Actions& actions) {
  for (const negotiation::Fail& fail : actions.fails) {
    const bool stalled = fail.failure.kind == FailureKind::stalled;
    if (!recorder_.expects_fault() || (!stalled && fail.failure.kind != FailureKind::peer_left))
      continue;
    recorder_.fault(stalled ? diagnostics::EventKind::stall : diagnostics::EventKind::peer_left,
                    fail.failure.message, pending(), now_);
  }
}

diagnostics::Recorder::Pending ProgressEngine::pending() const {
  diagnostics::Recorder::Pending all;
  for (const Pending& pending : negotiating_)
    if (pending.operation != nullptr)
      all.push_back({pending.operation->tag(), &pending.operation->descriptor()});
  for (const Running& running : running_)
    for (const detail::Operation* operation : running.operations)
      all.push_back({operation->tag(), &operation->descriptor(), true, running.sequence});
  return all;
}

void ProgressEngine::leave(bool clean, const std::string& reason) {
  if (std::exchange(leaving_, true) || failed()) return;
  try {
    now_ = std::chrono::steady_clock::now();
    submit();
    if (clean) {
      recorder_.note(diagnostics::EventKind::leaving, reason, now_);
    } else {
      recorder_.fault(diagnostics::EventKind::leaving, reason, pending(), now_);
    }
    negotiator_.on_leave(reason);
    board_.publish_end({FailureKind::shut_down, reason, "", RankSet::of(rank_)},
                       /*alarm=*/false, now_);
  } catch (const std::exception& error) {
    fail_session(error);
  }
}

detail::Operation* ProgressEngine::take_operation(negotiation::Ticket ticket) {
  free_tickets_.push_back(ticket);
  return std::exchange(negotiating_[ticket].operation, nullptr);
}

void ProgressEngine::finish(detail::Operation* operation, std::exception_ptr error,
                            std::int64_t answer) {
  if (error != nullptr) {
    recorder_.failed(operation->tag(), now_);
  } else {
    recorder_.answered(operation->tag(), now_);
  }
  ++finished_;
  queue_.release({&operation, 1}, error != nullptr);
  operation->finish(std::move(error), answer);
}

void ProgressEngine::fail_session(const std::exception& error) {
  fail_session({FailureKind::backend, error.what(), "", RankSet::of(rank_)});
}

void ProgressEngine::fail_session(Failure failure, int reported_by) {
  log(LogLevel::critical, "the session cannot go on: " + failure.message);
  const Failure outside = as_seen_by_others(failure, rank_);
  board_.publish_end(outside, /*alarm=*/true, now_);
  propagate_failure(outside, reported_by);
  recorder_.fault(diagnostics::EventKind::fault, failure.message, pending(), now_);
  free_tickets_.clear();
  failure_ = std::move(failure);
  for (const Pending& pending : std::exchange(negotiating_, {}))
    if (pending.operation != nullptr) finish(pending.operation, failure_of(*pending.operation));
  // The network may still write the buffers of batches: the program should end its process.
  for (const Running& running : running_)
    for (detail::Operation* operation : running.operations)
      finish(operation, failure_of(*operation));
  running_.clear();
  links_.abandon();
}

/// Ranks of this host see the failure on the board. Each rank sends it to its neighbors in the tree
/// except the one that reported it, so every edge between hosts carries it once.
void ProgressEngine::propagate_failure(const Failure& failure, int reported_by) {
  for (const int peer : edges_) {
    if (peer == reported_by || board_.shows(peer)) continue;
    try {
      transport_.send(peer, negotiation::encode(session_, failure));
    } catch (const std::exception& error) {
      log(LogLevel::warning,
          fmt::format("the failure could not be sent to rank {}: {}", peer, error.what()));
    }
  }
}

std::exception_ptr ProgressEngine::failure_of(const detail::Operation& operation) const {
  Failure failure = *failure_;
  const std::string what =
      negotiation::operation_in_words(operation.descriptor().type, operation.key());
  if (!failure.message.starts_with(what)) failure.message = what + ": " + failure.message;
  failure.tensor = operation.key().name;
  return to_exception(failure);
}

}  // namespace kolo::internal::session
