#include "session/coordinator.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"

namespace kolo::session {
namespace {

/// How often the negotiator looks for operations that are late.
constexpr std::chrono::milliseconds look_interval{100};

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
                         Links& links, Recording& recording)
    : negotiator_(options),
      queue_(queue),
      links_(links),
      transport_(links.transport()),
      recording_(recording) {}

bool Coordinator::turn() {
  try {
    const auto now = now_ = std::chrono::steady_clock::now();
    negotiator_.set_time(now);
    if (recording_.asked_by_signal()) recording_.write_asked_for(pending());
    bool moved = submit();
    if (failed()) return moved;
    moved |= transport_.poll([&](int peer, std::span<const std::byte> message) {
      recording_.received(message.size());
      negotiator_.on_message(peer, message);
    });
    if (now >= next_look_) {
      next_look_ = now + look_interval;
      negotiator_.on_time(now);
      look();
    }
    if (failed()) return true;
    moved |= negotiate();
    moved |= execute();
    return moved;
  } catch (const std::exception& error) {
    fail_everything(std::make_exception_ptr(BackendError(error.what())), error.what());
    return true;
  }
}

void Coordinator::look() {
  if (failed() || negotiator_.ended()) return;
  if (!lost_.empty()) {
    const std::string reason = fmt::format(
        "the process{} of rank{} {} ended without leaving the session",
        lost_.size() == 1 ? "" : "es", lost_.size() == 1 ? "" : "s", to_string(RankSet::of(lost_)));
    fail_everything(std::make_exception_ptr(PeerLeft(reason, "", lost_)), reason);
  }
  lost_ = links_.lost_ranks();
}

bool Coordinator::submit() {
  queue_.take(taken_);
  for (detail::Operation* operation : taken_) {
    recording_.submitted(*operation, now_);
    if (failed()) {
      finish(operation, failure_);
      continue;
    }
    ++submissions_;
    negotiator_.on_submit(keep(operation), operation->key(), operation->descriptor());
  }
  return !taken_.empty();
}

/// Tickets are given again, so that a steady stream of operations allocates nothing.
negotiation::Ticket Coordinator::keep(detail::Operation* operation) {
  if (free_tickets_.empty()) {
    negotiating_.push_back(operation);
    return negotiating_.size() - 1;
  }
  const negotiation::Ticket ticket = free_tickets_.back();
  free_tickets_.pop_back();
  negotiating_[ticket] = operation;
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
  if (std::exchange(plans_, negotiator_.plans()) != negotiator_.plans())
    log(LogLevel::debug, fmt::format("plan {} begins; {} batches came from plans before", plans_,
                                     negotiator_.replayed()));
  return !actions.empty();
}

void Coordinator::start(const negotiation::Execute& execute) {
  backend::Batch batch{.kind = execute.kind,
                       .members = {},
                       .set = execute.members.to_vector(),
                       .ranks = execute.members.without(execute.absent).to_vector(),
                       .divisor = 1,
                       .sequence = execute.sequence};
  if (execute.kind.op == ReduceOp::average) {
    const bool over_all = execute.kind.average_over == AverageOver::all;
    batch.divisor = static_cast<std::int64_t>(over_all ? batch.set.size() : batch.ranks.size());
  }
  Running running{nullptr, {}, execute.set, execute.sequence};
  running.operations.reserve(execute.tickets.size());
  batch.members.reserve(execute.tickets.size());
  for (const negotiation::Ticket ticket : execute.tickets) {
    running.operations.push_back(take_operation(ticket));
    for (const backend::Member& member : running.operations.back()->members())
      batch.members.push_back(&member);
  }
  recording_.started(batch, execute.set, running.operations, now_);
  running_.push_back(std::move(running));  // first, so that an error below fails its operations too
  running_.back().execution = links_.backend().start(std::move(batch));
}

bool Coordinator::execute() {
  bool moved = false;
  for (auto running = running_.begin(); running != running_.end();) {
    const backend::Progress progress = running->execution->step();
    moved |= progress != backend::Progress::waiting;
    if (progress != backend::Progress::done) {
      ++running;
      continue;
    }
    recording_.done(running->sequence, running->operations, now_);
    queue_.release(running->operations);
    for (detail::Operation* operation : running->operations) operation->finish(nullptr);
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
  for (const detail::Operation* operation : negotiating_)
    if (operation != nullptr) all.push_back({operation->tag(), &operation->descriptor()});
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
  } catch (const std::exception& error) {
    fail_everything(std::make_exception_ptr(BackendError(error.what())), error.what());
  }
}

detail::Operation* Coordinator::take_operation(negotiation::Ticket ticket) {
  free_tickets_.push_back(ticket);
  return std::exchange(negotiating_[ticket], nullptr);
}

void Coordinator::finish(detail::Operation* operation, std::exception_ptr error,
                         std::int64_t answer) {
  recording_.ended(*operation, error != nullptr, now_);
  queue_.release({&operation, 1});
  operation->finish(std::move(error), answer);
}

void Coordinator::fail_everything(std::exception_ptr failure, const std::string& reason) {
  log(LogLevel::critical, "the session cannot go on: " + reason);
  recording_.fault(diagnostics::EventKind::fault, reason, pending(), now_);
  free_tickets_.clear();
  failure_ = std::move(failure);
  for (detail::Operation* operation : std::exchange(negotiating_, {}))
    if (operation != nullptr) finish(operation, failure_);
  for (Running& running : running_) {
    // The network may still write its buffers: whoever is told should end the process.
    for (detail::Operation* operation : running.operations) finish(operation, failure_);
  }
  running_.clear();
}

}  // namespace kolo::session
