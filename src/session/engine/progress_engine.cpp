// SPDX-License-Identifier: Apache-2.0
#include "session/engine/progress_engine.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/dtype.hpp"
#include "base/finally.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::session {
namespace {

/// The description of an operation for records.
diagnostics::Subject subject_of(const detail::Operation& operation) {
  const Key& key = operation.key();
  diagnostics::Subject subject{
      .name = key.name, .number = key.number, .set = key.set, .descriptor = operation.descriptor()};
  subject.counts_steps = !key.reserved();
  if (key.reserved())
    subject.name = key.number == join_number ? "(join)" : "(change of process sets)";
  for (const backend::BatchTensor& member : operation.members())
    subject.bytes += member.elements() * signed_size_of(member.dtype);
  return subject;
}

}  // namespace

ProgressEngine::ProgressEngine(const Settings& settings,
                               const negotiation::NegotiatorOptions& options, OperationQueue& queue,
                               Links& links, backend::Backend& backend, LaunchedBatches& launched,
                               diagnostics::Recorder& recording, const Presence& presence,
                               ProcessSets& process_sets)
    : negotiator_(settings, options),
      queue_(queue),
      links_(links),
      backend_(backend),
      launched_(launched),
      transport_(links.transport()),
      board_(links.board()),
      recorder_(recording),
      process_sets_(process_sets),
      session_(options.session),
      rank_(options.place.rank),
      ranks_(options.place.ranks),
      clock_(options.now),
      checks_(settings, options, negotiator_, work_, launched, links, presence, clock_),
      pace_(settings, {session_, rank_, ranks_, options.place.parent}, transport_, recording,
            clock_),
      presence_(presence) {
  for (const negotiation::Child& child : options.place.children) edges_.push_back(child.rank);
  if (options.place.parent >= 0) edges_.push_back(options.place.parent);
}

bool ProgressEngine::progress() {
  const bool moved = pass();
  // Last: the ranks that wait for a plan's batch sleep until this one has taken its first steps
  // with it, so that they find its data when they wake, and need not sleep again.
  if (board_ != nullptr) board_->wake();
  return moved;
}

bool ProgressEngine::pass() {
  try {
    read_clock();
    if (recorder_.asked_by_signal()) recorder_.write_asked_for(work_.pending());
    bool moved = submit();
    if (failed()) return moved;
    moved |= receive();
    if (failed()) return true;
    moved |= negotiate();
    moved |= settle_launched();
    moved |= execute();
    if (checks_.are_due()) {
      // Read the clock again: with the old time, a batch started below would seem, in a timeline,
      // to begin before one that has just ended.
      read_clock();
      // Submit before the checks: an operation that waits in the queue is not late, and must not
      // end a plan.
      moved |= submit();
      if (failed()) return true;
      check();
      if (!failed()) moved |= negotiate();
    }
    return moved || failed();
  } catch (...) {
    fail_session_with_current_exception();
    return true;
  }
}

void ProgressEngine::read_clock() {
  const std::chrono::nanoseconds pause = clock_.advance(std::chrono::steady_clock::now());
  negotiator_.set_time(clock_.now());
  transport_.set_time(clock_.now(), pause);
  // After a long pause, the silence of other ranks is measured anew. A short pause makes no rank
  // look silent. If every pause counted, a process that is often delayed would never notice a rank
  // that hangs.
  if (pause >= std::chrono::seconds(1)) checks_.board().begin_anew(clock_.real());
}

bool ProgressEngine::receive() {
  std::optional<ReportedFailure> reported;
  const bool moved = transport_.poll(
      [&](int peer, std::span<const std::byte> bytes) { receive(peer, bytes, reported); });
  // A failed rank sends its reason before it closes the connection, so a reported failure takes
  // precedence over the loss of a connection.
  const Failure* loss = transport_.loss();
  if (reported) {
    fail_session(std::move(reported->failure), reported->reported_by);
  } else if (loss != nullptr && !negotiator_.ended()) {
    lost_a_process_ = true;
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
    checks_.receive(*heartbeat);
  } else if (auto* const pace = std::get_if<PaceReport>(&message.body)) {
    pace_.receive(peer, std::move(*pace));
  } else {
    negotiator_.on_message(peer, std::move(message.body), bytes);
  }
}

void ProgressEngine::check() {
  std::optional<Failure> failure;
  {
    // Noted even if the checks throw: a process that has ended never finalizes MPI.
    const Finally note_lost([this] { lost_a_process_ |= checks_.found_ended_process(); });
    failure = checks_.check({.submitted = submissions_,
                             .finished = finished_,
                             .submitted_at = submitted_at_,
                             .leaving = leaving_});
  }
  if (failure) return fail_session(*std::move(failure));
  // Until this rank leaves, its parent waits for it.
  if (!leaving_) pace_.check([this] { return checks_.wait_in_words(); });
}

bool ProgressEngine::submit() {
  queue_.take(taken_);
  if (!taken_.empty()) recorder_.waited(presence_.waited(clock_.real()));
  for (detail::Operation*& taken : taken_) {
    if (!taken->begun_again() || !recorder_.submitted_again(taken->tag(), clock_.real()))
      taken->tag() = recorder_.submitted(subject_of(*taken), clock_.real(), taken->tag());
    detail::Operation* const operation = taken;
    if (failed()) {
      taken = nullptr;
      finish(operation, failure_of(*operation));
      continue;
    }
    const negotiation::Ticket ticket = work_.add(operation, clock_.now());
    taken = nullptr;  // from now on `fail_operations` finds the operation by its ticket
    ++submissions_;
    negotiator_.on_submit(ticket, operation->key(), operation->descriptor(), operation->version());
  }
  if (!taken_.empty()) submitted_at_ = clock_.real();
  return !taken_.empty();
}

bool ProgressEngine::negotiate() {
  const negotiation::Actions actions = negotiator_.take();
  record_faults(actions);
  // A prepared batch that the plan has withdrawn is dropped first, since its operations may fail or
  // return to negotiation below.
  const std::uint64_t next =
      actions.executes.empty() ? negotiator_.next_mark() : actions.executes.front().mark;
  if (prepared_.mark != next) prepared_.execution.reset();
  for (const negotiation::Send& send : actions.sends) {
    recorder_.sent(send.message.size());
    transport_.send(send.peer, send.message);
  }
  for (const negotiation::Execute& execute : actions.executes) start(execute);
  if (actions.upcoming) prepare(*actions.upcoming);
  for (const negotiation::Fail& fail : actions.fails) {
    std::exception_ptr error = to_exception(fail.failure);  // may throw, so it precedes `take`
    report_missed(fail.failure, work_[fail.ticket]);
    has_missed_ranks_ |= is_of_others(fail.failure.kind);
    finish(work_.take(fail.ticket), std::move(error));
  }
  // A rank that has joined also removes the set, since its handles must refuse later operations.
  // The answers come afterwards, so that a thread that has waited for one sees the removal.
  for (const SetId set : actions.removed) process_sets_.remove(set);
  for (const negotiation::Answer& answer : actions.answers)
    finish(work_.take(answer.ticket), nullptr, answer.value);
  for (const std::string& report : actions.reports) {
    recorder_.note(diagnostics::EventKind::stall, report, clock_.real());
    log_limited(LogLevel::warning, "stall reports", report);
  }
  recorder_.plans(negotiator_.plans(), negotiator_.replayed(), negotiator_.in_plan(),
                  clock_.real());
  if (!actions.questions.empty() && checks_.board().is_lowest())
    negotiator_.on_answer(actions.questions, checks_.board().read_all(clock_.real()));
  if (std::exchange(plans_, negotiator_.plans()) != negotiator_.plans())
    log(LogLevel::debug, fmt::format("plan {} begins; {} batches came from plans before", plans_,
                                     negotiator_.replayed()));
  return !actions.empty();
}

template <typename Work>
auto ProgressEngine::of_batch(const RunningBatch& running, const Work& work) {
  try {
    return work();
  } catch (...) {
    throw BackendError(describe(running) + ": " + message_of_current_exception());
  }
}

backend::Batch ProgressEngine::batch_of(const negotiation::Execute& execute) const {
  backend::Batch batch{.kind = execute.kind,
                       .tensors = {},
                       .set = execute.members.to_vector(),
                       .ranks = execute.members.without(execute.absent).to_vector(),
                       .divisor = 1,
                       .sequence = execute.sequence,
                       .joins = execute.joins,
                       .mark = execute.mark};
  if (execute.kind.op == ReduceOp::average) {
    const bool over_all = execute.kind.average_over == AverageOver::all;
    batch.divisor = static_cast<std::int64_t>(over_all ? batch.set.size() : batch.ranks.size());
  }
  if (recorder_.wants_phases()) batch.observer = &recorder_;
  batch.tensors.reserve(execute.tickets.size());
  for (const negotiation::Ticket ticket : execute.tickets)
    for (const backend::BatchTensor& member : work_[ticket]->members())
      batch.tensors.push_back(&member);
  return batch;
}

void ProgressEngine::prepare(const negotiation::Execute& upcoming) {
  // A batch that is held back has not entered the backend's order yet, and must enter it before the
  // upcoming one.
  if (executing() && work_.running().back().held_back != nullptr) return;
  try {
    prepared_ = {upcoming.mark, backend_.prepare(batch_of(upcoming))};
  } catch (...) {
    RunningBatch named{{}, {}, upcoming.set, upcoming.sequence, clock_.now()};
    for (const negotiation::Ticket ticket : upcoming.tickets)
      named.operations.push_back(work_[ticket]);
    of_batch(named, [] { throw; });
  }
}

void ProgressEngine::start(const negotiation::Execute& execute) {
  std::unique_ptr<backend::Execution> prepared = std::move(prepared_.execution);
  std::optional<backend::Batch> batch;
  if (prepared == nullptr) batch = batch_of(execute);
  // The batch joins the list first, so that an error below fails its operations too.
  RunningBatch& running = work_.running().emplace_back(
      RunningBatch{std::move(prepared), {}, execute.set, execute.sequence, clock_.now()});
  running.operations.reserve(execute.tickets.size());
  for (const negotiation::Ticket ticket : execute.tickets)
    running.operations.push_back(work_.take(ticket));
  record_start(execute, running);
  if (!batch) return;
  if (may_start(running))
    begin(running, *std::move(batch));
  else
    running.held_back = std::make_unique<backend::Batch>(*std::move(batch));
}

/// False while an earlier batch runs that may use the same message tags. Another rank may finish
/// the earlier batch and begin the later one before this rank does. Messages are not confused: the
/// other rank sends all of the earlier batch first, this rank receives them in that order, and MPI
/// keeps the order. There is no deadlock: a batch waits only for earlier ones, and the earliest
/// unfinished batch waits for none.
bool ProgressEngine::may_start(const RunningBatch& running) const {
  return running.sequence - work_.running().front().sequence < backend_.sequence_span();
}

void ProgressEngine::begin(RunningBatch& running, backend::Batch batch) {
  running.execution = of_batch(running, [&] { return backend_.start(std::move(batch)); });
}

bool ProgressEngine::execute() {
  bool moved = false;
  std::deque<RunningBatch>& batches = work_.running();
  for (auto running = batches.begin(); running != batches.end();) {
    if (running->held_back != nullptr) {
      if (!may_start(*running)) break;  // later batches may not start either
      begin(*running, std::move(*std::exchange(running->held_back, nullptr)));
      moved = true;
    }
    const backend::Progress progress =
        of_batch(*running, [&] { return running->execution->step(); });
    if (progress != backend::Progress::waiting) {
      moved = true;
      running->moved_at = clock_.now();
    }
    if (progress == backend::Progress::waiting || progress == backend::Progress::moved) {
      ++running;
      continue;
    }
    const TimePoint at = record_end(*running);
    // Removed from the list first, so that an error below cannot finish its operations twice.
    RunningBatch ended = std::move(*running);
    running = batches.erase(running);
    finish_batch(std::move(ended), progress == backend::Progress::launched, at);
  }
  return moved;
}

void ProgressEngine::record_start(const negotiation::Execute& execute,
                                  const RunningBatch& running) {
  std::int64_t bytes = 0;
  for (const detail::Operation* operation : running.operations) bytes += operation->tag().bytes;
  const auto& members = running.operations.front()->members();
  recorder_.batch_started({.number = execute.sequence,
                           .set = running.set,
                           .type = execute.kind.type,
                           .dtype = members.empty() ? DType::u8 : members.front().dtype,
                           .operations = running.operations.size(),
                           .bytes = bytes},
                          clock_.real());
}

/// Must be called before the operations fail, so that the record lists them as pending.
void ProgressEngine::record_faults(const negotiation::Actions& actions) {
  for (const negotiation::Fail& fail : actions.fails) {
    const bool stalled = fail.failure.kind == FailureKind::stalled;
    if (!recorder_.expects_fault() || (!stalled && fail.failure.kind != FailureKind::peer_left))
      continue;
    // At the end of a training, the other rank is done, and so is this one.
    if (!stalled && work_[fail.ticket]->key().name == stop_operation) continue;
    recorder_.fault(stalled ? diagnostics::EventKind::stall : diagnostics::EventKind::peer_left,
                    fail.failure.message, work_.pending(), clock_.real());
  }
}

}  // namespace kolo::internal::session
