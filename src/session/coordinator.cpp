#include "session/coordinator.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "negotiation/explain.hpp"

namespace kolo::session {
namespace {

std::exception_ptr to_exception(const negotiation::Failure& failure) {
  const std::vector<int> ranks = failure.ranks.to_vector();
  switch (failure.kind) {
    case negotiation::FailureKind::mismatch:
      return std::make_exception_ptr(Mismatch(failure.message, failure.tensor, ranks));
    case negotiation::FailureKind::peer_left:
      return std::make_exception_ptr(PeerLeft(failure.message, failure.tensor, ranks));
    case negotiation::FailureKind::stalled:
      return std::make_exception_ptr(Stalled(failure.message, failure.tensor, ranks));
    case negotiation::FailureKind::shut_down:
      return std::make_exception_ptr(ShutDown(failure.message, failure.tensor, ranks));
  }
  std::terminate();
}

}  // namespace

Coordinator::Coordinator(const negotiation::NegotiatorOptions& options, OperationQueue& queue,
                         Links& links, backend::Backend& backend, Recording& recording,
                         const Presence& presence)
    : negotiator_(options),
      queue_(queue),
      links_(links),
      backend_(backend),
      transport_(links.transport()),
      recording_(recording),
      session_(options.session),
      presence_(presence),
      rank_(options.place.rank),
      parent_(options.place.parent),
      board_(links.seats(), rank_),
      heartbeat_(parent_ >= 0 && board_.shows(parent_) ? -1 : parent_, options.stall_warning,
                 options.stall_shutdown, std::chrono::steady_clock::now()),
      watch_(board_, rank_, {options.stall_warning, options.stall_shutdown}) {
  for (const negotiation::Child& child : options.place.children) {
    edges_.push_back(child.rank);
    if (!board_.shows(child.rank)) far_children_.push_back(child.rank);
  }
  if (parent_ >= 0) edges_.push_back(parent_);
}

bool Coordinator::turn() {
  try {
    now_ = std::chrono::steady_clock::now();
    negotiator_.set_time(now_);
    if (recording_.asked_by_signal()) recording_.write_asked_for(pending());
    bool moved = submit();
    if (failed()) return moved;
    moved |= receive();
    if (failed()) return true;
    moved |= negotiate();
    moved |= execute();
    if (now_ >= next_look_ || board_.take_alarm()) {
      look();
      if (!failed()) moved |= negotiate();
    }
    return moved || failed();
  } catch (const std::exception& error) {
    break_down(error);
    return true;
  }
}

bool Coordinator::receive() {
  std::optional<Breakdown> told;
  int told_by = -1;
  const bool moved = transport_.poll([&](int peer, std::span<const std::byte> message) {
    recording_.received(message.size());
    if (std::optional<Breakdown> breakdown = decode_breakdown(session_, message)) {
      if (told) return;
      told = std::move(breakdown);
      told_by = peer;
    } else if (const std::optional<Beat> beat = decode_beat(session_, message)) {
      heartbeat_.hear(*beat, now_);
    } else {
      negotiator_.on_message(peer, message);
    }
  });
  const transport::Loss* loss = transport_.loss();
  if (told) {
    fail_everything(*std::move(told), told_by);
  } else if (loss != nullptr && !negotiator_.ended()) {
    fail_everything({Breakdown::Kind::peer_left, loss->reason, loss->ranks});
  }
  return moved;
}

/// Down the tree only: who is above learns by what is missing. Whatever comes after the end of the
/// log would find nobody, so this is never called then.
void Coordinator::send_beats() {
  const std::optional<Beat> beat = heartbeat_.next(now_);
  if (!beat) return;
  for (const int child : far_children_) transport_.send(child, encode(session_, *beat));
}

bool Coordinator::submit() {
  queue_.take(taken_);
  for (detail::Operation* operation : taken_) {
    recording_.submitted(*operation, now_);
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
negotiation::Ticket Coordinator::keep(detail::Operation* operation) {
  if (free_tickets_.empty()) {
    negotiating_.push_back({operation, now_});
    return negotiating_.size() - 1;
  }
  const negotiation::Ticket ticket = free_tickets_.back();
  free_tickets_.pop_back();
  negotiating_[ticket] = {operation, now_};
  return ticket;
}

bool Coordinator::negotiate() {
  const negotiation::Actions actions = negotiator_.take();
  record_faults(actions);
  for (const negotiation::Send& send : actions.sends) {
    recording_.sent(send.message.size());
    transport_.send(send.peer, send.message);
  }
  for (const negotiation::Execute& execute : actions.executes) start(execute);
  for (const negotiation::Fail& fail : actions.fails)
    finish(take_operation(fail.ticket), to_exception(fail.failure));
  for (const negotiation::Answer& answer : actions.answers)
    finish(take_operation(answer.ticket), nullptr, answer.value);
  for (const std::string& report : actions.reports) {
    recording_.note(diagnostics::EventKind::stall, report, now_);
    log_limited(LogLevel::warning, "stall reports", report);
  }
  recording_.plans(negotiator_.plans(), negotiator_.replayed(), negotiator_.in_plan(), now_);
  if (!actions.questions.empty()) answer_questions(actions.questions);
  if (std::exchange(plans_, negotiator_.plans()) != negotiator_.plans())
    log(LogLevel::debug, fmt::format("plan {} begins; {} batches came from plans before", plans_,
                                     negotiator_.replayed()));
  return !actions.empty();
}

void Coordinator::start(const negotiation::Execute& execute) {
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
  Running running{nullptr, {}, execute.set, execute.sequence, batch.ranks, now_};
  running.operations.reserve(execute.tickets.size());
  batch.tensors.reserve(execute.tickets.size());
  for (const negotiation::Ticket ticket : execute.tickets) {
    running.operations.push_back(take_operation(ticket));
    for (const backend::BatchTensor& member : running.operations.back()->members())
      batch.tensors.push_back(&member);
  }
  recording_.started(batch, execute.set, running.operations, now_);
  running_.push_back(std::move(running));  // first, so that an error below fails its operations too
  try {
    running_.back().execution = backend_.start(std::move(batch));
  } catch (const std::exception& error) {
    throw BackendError(describe(running_.back()) + ": " + error.what());
  }
}

backend::Progress Coordinator::step(Running& running) const {
  try {
    return running.execution->step();
  } catch (const std::exception& error) {
    throw BackendError(describe(running) + ": " + error.what());
  }
}

bool Coordinator::execute() {
  bool moved = false;
  for (auto running = running_.begin(); running != running_.end();) {
    const backend::Progress progress = step(*running);
    if (progress != backend::Progress::waiting) {
      moved = true;
      running->moved_at = now_;
    }
    if (progress != backend::Progress::done) {
      ++running;
      continue;
    }
    recording_.done(running->sequence, running->operations, now_);
    queue_.release(running->operations);
    for (detail::Operation* operation : running->operations) operation->finish(nullptr);
    finished_ += running->operations.size();
    negotiator_.on_done(running->set);
    running = running_.erase(running);
  }
  return moved;
}

/// Before operations learn of it: they are listed as pending.
void Coordinator::record_faults(const negotiation::Actions& actions) {
  using negotiation::FailureKind;
  for (const negotiation::Fail& fail : actions.fails) {
    const bool stalled = fail.failure.kind == FailureKind::stalled;
    if (!recording_.expects_fault() || (!stalled && fail.failure.kind != FailureKind::peer_left))
      continue;
    recording_.fault(stalled ? diagnostics::EventKind::stall : diagnostics::EventKind::peer_left,
                     fail.failure.message, pending(), now_);
  }
}

Recording::Pending Coordinator::pending() const {
  Recording::Pending all;
  for (const Pending& pending : negotiating_)
    if (pending.operation != nullptr)
      all.push_back({pending.operation->tag(), &pending.operation->descriptor()});
  for (const Running& running : running_)
    for (const detail::Operation* operation : running.operations)
      all.push_back({operation->tag(), &operation->descriptor(), true, running.sequence});
  return all;
}

void Coordinator::leave(bool clean, const std::string& reason) {
  if (std::exchange(leaving_, true) || failed()) return;
  try {
    now_ = std::chrono::steady_clock::now();
    submit();
    if (clean) {
      recording_.note(diagnostics::EventKind::leaving, reason, now_);
    } else {
      recording_.fault(diagnostics::EventKind::leaving, reason, pending(), now_);
    }
    negotiator_.on_leave(clean, reason);
    board_.publish_end({negotiation::FailureKind::shut_down, reason, RankSet::of(rank_)},
                       /*alarm=*/false, now_);
  } catch (const std::exception& error) {
    break_down(error);
  }
}

detail::Operation* Coordinator::take_operation(negotiation::Ticket ticket) {
  free_tickets_.push_back(ticket);
  return std::exchange(negotiating_[ticket].operation, nullptr);
}

void Coordinator::finish(detail::Operation* operation, std::exception_ptr error,
                         std::int64_t answer) {
  recording_.ended(*operation, error != nullptr, now_);
  ++finished_;
  queue_.release({&operation, 1});
  operation->finish(std::move(error), answer);
}

void Coordinator::break_down(const std::exception& error) {
  fail_everything({Breakdown::Kind::backend, error.what(), {rank_}});
}

void Coordinator::fail_everything(Breakdown failure, int told_by) {
  using negotiation::FailureKind;
  log(LogLevel::critical, "the session cannot go on: " + failure.reason);
  const Breakdown outside = failure.as_seen_from_others(rank_);
  board_.publish_end(
      {outside.kind == Breakdown::Kind::stalled ? FailureKind::stalled : FailureKind::peer_left,
       outside.reason, RankSet::of(outside.ranks)},
      /*alarm=*/true, now_);
  tell_other_hosts(outside, told_by);
  recording_.fault(diagnostics::EventKind::fault, failure.reason, pending(), now_);
  free_tickets_.clear();
  failure_ = std::move(failure);
  for (const Pending& pending : std::exchange(negotiating_, {}))
    if (pending.operation != nullptr) finish(pending.operation, failure_of(*pending.operation));
  for (Running& running : running_) {
    // The network may still write its buffers: whoever is told should end the process.
    for (detail::Operation* operation : running.operations)
      finish(operation, failure_of(*operation));
  }
  running_.clear();
  links_.abandon();
}

/// Those of this host see it on the board.
void Coordinator::tell_other_hosts(const Breakdown& failure, int told_by) {
  for (const int peer : edges_) {
    if (peer == told_by || board_.shows(peer)) continue;
    try {
      transport_.send(peer, encode(session_, failure));
    } catch (const std::exception& error) {
      log(LogLevel::warning,
          fmt::format("rank {} could not be told of it: {}", peer, error.what()));
    }
  }
}

std::exception_ptr Coordinator::failure_of(const detail::Operation& operation) const {
  std::string message =
      negotiation::operation_in_words(operation.descriptor().type, operation.key());
  message =
      failure_->reason.starts_with(message) ? failure_->reason : message + ": " + failure_->reason;
  const std::string& tensor = operation.key().name;
  switch (failure_->kind) {
    case Breakdown::Kind::peer_left:
      return std::make_exception_ptr(PeerLeft(message, tensor, failure_->ranks));
    case Breakdown::Kind::stalled:
      return std::make_exception_ptr(Stalled(message, tensor, failure_->ranks));
    case Breakdown::Kind::backend:
      return std::make_exception_ptr(BackendError(message, tensor, failure_->ranks));
  }
  std::terminate();
}

}  // namespace kolo::session
