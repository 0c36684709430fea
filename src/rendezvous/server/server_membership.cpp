// SPDX-License-Identifier: Apache-2.0
// The half of the server that decides which processes are lost, which are in the next generation,
// and when the job is over.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <utility>

#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

constexpr std::chrono::seconds patience_with_cause{2};

}  // namespace

// ---- losses ----

void Server::lose(Process& process, const std::string& reason, Fault fault, Time now) {
  if (process.stage == Stage::lost || process.stage == Stage::left) return;
  const bool was_member = process.is_living_member();
  process.lose(reason);
  const std::string text = process.reason;
  processes_.move(process, Stage::lost);
  outcome_.note_loss(process, was_member);
  if (was_member) generation_.note_lost();
  if (process.link) {
    actions_.send(*process.link, Refusal{reason});
    connections_.close(*std::exchange(process.link, std::nullopt));
  }
  if (process.agent && !process.exited) actions_.send(*process.agent, Kill{process.id, reason});
  if (const Agent* const agent = process.agent ? hosts_.find(*process.agent) : nullptr;
      agent != nullptr && fault == Fault::own)
    hosts_.cool_down(*agent, now);
  actions_.note(options_.elastic && stopping_ == 0 ? LogLevel::warning : LogLevel::info, text);
  if (was_member && generation_.is_running()) generation_.break_up(text, {process.rank}, now);
  processes_.end_awaiting_close(process);
  if (options_.elastic) return;
  if (!process.agent) finish({1, text});
  finish_if_ended_by(process, now);
}

/// Ends a job that is not elastic if this process was the first to be lost and has exited. If
/// another one has failed before, which the others have noticed, it gets time to exit too: its
/// status and message are those of the job. So do the processes that a victim misses, and the hosts
/// that may be cut off.
void Server::finish_if_ended_by(Process& process, Time now) {
  Process* const cause = processes_.find(outcome_.cause());
  const bool has_failed = process.exited && process.stage == Stage::lost;
  if (&process == cause && has_failed) return finish(JobOutcome::failure_of(process));
  if (has_failed && !options_.elastic) outcome_.note_failed(process);
  const bool awaits_cause = cause != nullptr && cause->agent;
  if (end_after_cause_) {
    if (!awaits_cause && outcome_.culprit()) finish(*outcome_.culprit());
    return;
  }
  const std::optional<Finish> end = outcome_.end_as(process);
  if (!end) return;
  if (!awaits_cause && process.is_victim && outcome_.culprit()) return finish(*outcome_.culprit());
  if (!awaits_cause && !misses_running(process)) return finish(*end);
  end_after_cause_ = end;
  awaited_ = process.missed;
  cause_since_ = now;
  if (awaits_cause && cause->exited) judge_exit(*cause, now);
}

/// True if the process is a victim of others, of which some have not ended.
bool Server::misses_running(const Process& process) const {
  return std::ranges::any_of(process.missed, [&](ProcessId id) {
    const Process* const other = processes_.find(id);
    return other != nullptr && other->agent && !other->exited && other->stage != Stage::left;
  });
}

/// True if the first victim misses processes of a host that has sent nothing since: it may be cut
/// off, which the end of its lease shows.
bool Server::awaits_silent_host() const {
  return std::ranges::any_of(awaited_, [&](ProcessId id) {
    const Process* const other = processes_.find(id);
    if (other == nullptr || !other->agent || other->exited) return false;
    const auto agent = hosts_.agents().find(*other->agent);
    return agent != hosts_.agents().end() && agent->second.heard <= cause_since_;
  });
}

void Server::finish_without_cause() {
  Names missed;
  for (const ProcessId id : awaited_)
    if (const Process* const other = processes_.find(id); other != nullptr && !other->exited)
      missed.add(other->name());
  if (const Process* const cause = processes_.find(outcome_.cause()))
    end_after_cause_->reason +=
        fmt::format(". Before that, {} failed: {}", cause->name(), cause->own_failure);
  else
    end_after_cause_->reason += missed.after(". It missed ");
  finish(*end_after_cause_);
}

/// Ends an elastic job that waits for processes if each that its hosts start ends before it reaches
/// a session. While a session runs, they do no harm.
void Server::end_crash_loop(const Process& process) {
  if (!options_.elastic || finished() || stopping_ != 0 || outcome_.is_ending()) return;
  hosts_.note_failed_start(process.host);
  const bool waits = generation() == 0 || generation_.is_broken() || generation_.is_meeting();
  if (!waits || !hosts_.only_fail()) return;
  const Generation::Candidates all = candidates();
  if (all.survivors.size() + all.newcomers.size() >= static_cast<std::size_t>(options_.min_np))
    return;
  Finish end = JobOutcome::failure_of(process);
  end.reason = fmt::format(
      "{} processes in a row have ended before they reached a session, and the job needs {} ranks; "
      "the last one: {}",
      hosts_.failed_starts(), options_.min_np, process.reason);
  finish(end);
}

/// Declares lost all ranks that have kept the others waiting for too long.
void Server::end_late(Time now) {
  for (Process* const late : generation_.late_in_calls(now))
    lose(*late, "it did not take part in the start of the session", Fault::own, now);
  if (!generation_.is_meeting_overdue(now)) return;
  for (Process* const late : generation_.late_in_meeting(now))
    lose(*late, "it did not join the new session in time", Fault::own, now);
  meet(now);
  if (finished() || !generation_.is_meeting_overdue(now) || !generation_.is_broken()) return;
  finish({1, fmt::format("too few ranks are left: {} of at least {}", candidates().survivors.size(),
                         options_.min_np)});
}

void Server::judge_stall(Time now) {
  const std::optional<Time> at = stalls_.judged_at();
  if (!at || (now < *at && !generation_.all_have_come())) return;
  for (const StallJudge::Verdict& verdict : stalls_.judge(processes_, generation_.has_lost()))
    lose(*processes_.find(verdict.process), verdict.reason, Fault::own, now);
}

// ---- time ----

void Server::on_time(Time now) {
  connections_.refuse_late(now);
  if (take_over_) return take_over_if_due(now);
  if (!finished()) {
    for (const Link link : hosts_.silent(now)) {
      connections_.close(link);
      lose_agent(link,
                 fmt::format("it sent nothing for {} s",
                             std::chrono::duration<double>(options_.lease).count()),
                 now);
    }
    // Judge exited processes whose connection stays open, perhaps because a child inherited it.
    for (const ProcessId id : processes_.take_overdue(now))
      if (Process* const process = processes_.find(id)) judge_exit(*process, now);
    end_late(now);
    if (end_after_cause_ && now >= cause_since_ + patience_with_cause && !awaits_silent_host())
      finish_without_cause();
  }
  hosts_.mark_changed();  // a cooldown may have ended
  settle(now);
}

std::optional<Time> Server::next_time() const {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(connections_.next_time());
  if (take_over_) consider(take_over_->next_time());
  if (finished() || take_over_) return next;
  consider(hosts_.next_time(last_time_));
  consider(processes_.next_time());
  consider(generation_.next_time());
  if (generation() == 0) consider(start_deadline());
  consider(stalls_.judged_at());
  if (end_after_cause_ && !awaits_silent_host()) consider(cause_since_ + patience_with_cause);
  consider(announcement_time());
  return next;
}

void Server::settle(Time now) {
  last_time_ = now;
  if (take_over_) return;
  stop_if_superseded(now, options_.lease);
  if (!finished()) {
    if (options_.has_agents && !outcome_.is_ending() && stopping_ == 0) hosts_.start_processes(now);
    meet(now);
    if (const std::optional<Time> time = announcement_time(); time && now >= *time)
      generation_.announce();
    conclude();
  }
  if (options_.has_agents && (processes_.is_dirty() || hosts_.has_changed()))
    hosts_.tell_agents(!finished() && !outcome_.is_ending() && stopping_ == 0, now);
  processes_.sweep();
}

// ---- taking over from a lost server ----

void Server::take_over_if_due(Time now) {
  last_time_ = now;
  if (!take_over_ || !take_over_->is_complete(now)) return;
  const Inheritance all = take_over_->inherit();
  take_over_.reset();
  inherit(all, now);
}

/// Continues the job from what its agents and processes have said. Members that have not come are
/// lost, as those of a lost host.
void Server::inherit(const Inheritance& all, Time now) {
  adopt(all, processes_, hosts_, generation_, outcome_, now);
  if (generation() == 0) finish({1, all.why_nothing_goes_on()});
  for (const ProcessId id : all.members)
    if (Process& process = *processes_.find(id); !process.link && !process.ended_unheard)
      lose(process, "the first rendezvous server is lost, and this rank or its host with it",
           Fault::none, now);
  for (const Inheritance::Adopted& each : all.processes)
    if (Process& process = *processes_.find(each.id);
        each.standing.generation > 0 && process.stage != Stage::member)
      lose(process, "the job has gone on without it", Fault::none, now);
  for (const auto& [link, message] : all.messages) {
    Message current = message;
    // A member that the lost server could not tell of the newest generation joins the next one.
    const Peer* const peer = connections_.find(link);
    const Process* const process = peer == nullptr ? nullptr : processes_.find(peer->process);
    if (auto* const join = std::get_if<Join>(&current);
        join != nullptr && process != nullptr && process->stage == Stage::member)
      if (join->generation != generation())
        *join = {.generation = generation(), .commit = join->commit};
    on_message(link, current, now);
  }
  for (const int number : std::exchange(held_signals_, {})) on_signal(number, now);
  settle(now);
}

// ---- the next generation ----

void Server::meet(Time now) {
  judge_stall(now);
  if (finished() || (generation() > 0 && !generation_.is_meeting())) return;
  if (generation() == 0 ? !first_generation_is_due(now) : !generation_.all_have_come()) return;
  Generation::Candidates all = candidates();
  if (generation() > 0 && all.survivors.empty()) {
    generation_.end_meeting();  // all members have finished their part
    return;
  }
  if (state_is_lost(all.survivors))
    return finish({outcome_.status_of_last_loss(processes_),
                   fmt::format("no process with the job's state is left: {} commits were made",
                               outcome_.newest_commit())});
  if (options_.reset_limit >= 0 && generation_.losses() > options_.reset_limit)
    return finish({1, fmt::format("the session was lost {} times, and the limit is {}",
                                  generation_.losses(), options_.reset_limit)});
  dismiss_removed(all, now);
  if (!has_enough(all.survivors.size() + all.newcomers.size())) return;
  // Otherwise the standby may be about to begin a generation of the same processes.
  if (!hosts_.surely_rules(now)) return;
  stalls_.clear();
  hosts_.forget_failed_starts();
  if (generation_.publish(all)) outcome_.note_departure();
}

bool Server::first_generation_is_due(Time now) {
  const auto waiting = static_cast<int>(processes_.newcomers().size());
  if (waiting >= std::min(options_.np, hosts_.started_size()) && generation_.all_have_come())
    return true;
  const bool is_enough = options_.elastic && waiting >= options_.min_np;
  if (outcome_.is_ending() && waiting > 0 && generation_.all_have_come()) {
    if (is_enough) return true;
    finish({1, fmt::format("{} of {} processes have ended without a session, and the others wait "
                           "for them{}",
                           options_.np - waiting, options_.np,
                           outcome_.without_session().after(": "))});
    return false;
  }
  if (now < start_deadline()) return false;
  if (is_enough) return true;
  has_started_late_ = true;
  finish({1, fmt::format(
                 "only {} of {} processes joined within {} s{}", waiting, options_.np,
                 std::chrono::duration_cast<std::chrono::seconds>(options_.start_timeout).count(),
                 processes_.without_session().after("; missing: "))});
  return false;
}

/// True if no survivor has the job's state. A member may lack the newest commit, but not more. A
/// process that lacks more has joined recently and has no state to continue from. If the missing
/// commit is the first one, the survivors have not received it from rank 0 yet, and one of them
/// starts over.
bool Server::state_is_lost(const std::vector<Process*>& survivors) const {
  std::uint64_t newest = 0;
  for (const Process* const process : survivors) newest = std::max(newest, process->commit);
  return generation() > 0 && newest + 1 < outcome_.newest_commit();
}

Generation::Candidates Server::candidates() {
  return generation_.candidates(!outcome_.is_ending() || generation() == 0);
}

/// Removes the processes on hosts that leave the job, unless the remaining ones are too few or have
/// no state to continue from.
void Server::dismiss_removed(Generation::Candidates& all, Time now) {
  if (!generation_.can_do_without_removed()) return;
  for (std::vector<Process*>* const list : {&all.survivors, &all.newcomers})
    std::erase_if(*list, [&](Process* process) {
      if (!hosts_.is_removed(*process)) return false;
      // First take the process out of its generation, so that its departure does not count as a
      // loss, which would break the generation.
      processes_.move(*process, Stage::greeted);
      if (process->link) {
        actions_.send(*process->link, End{0, "this host is removed from it"});
        connections_.close(*std::exchange(process->link, std::nullopt));
      }
      lose(*process, "its host is removed from the job", Fault::none, now);
      return true;
    });
}

/// True if the next generation has enough candidates. If not and no more can come, ends the job.
bool Server::has_enough(std::size_t candidates) {
  if (candidates >= static_cast<std::size_t>(options_.min_np) || outcome_.only_completes())
    return true;
  const bool may_grow = generation() == 0 || (options_.elastic && !outcome_.is_ending());
  // Otherwise wait for the agent's report about the lost process, whose exit status ends the job.
  if (!may_grow && !outcome_.awaits_first_loss())
    finish(
        {1, fmt::format("{} ranks are left, and the job needs {}", candidates, options_.min_np)});
  return false;
}

std::optional<Time> Server::announcement_time() const {
  if (finished() || outcome_.is_ending()) return std::nullopt;
  return generation_.announcement_time(last_time_);
}

// ---- the end of the job ----

/// Ends agents without processes on hosts that leave the job, and ends the job if it is over.
void Server::conclude() {
  if (finished() || !processes_.is_dirty()) return;
  for (const Link link : hosts_.idle_removed()) {
    actions_.send(link, End{0, "the host is removed from the job"});
    connections_.close(link);
    static_cast<void>(hosts_.take(link));
  }
  if (const auto end = outcome_.conclude(processes_, generation() > 0)) finish(*end);
  // After SIGTERM lost processes are not replaced, so nothing else would end the job.
  const bool all_are_lost = std::ranges::all_of(processes_.all(), [](const auto& one) {
    return one.second.stage == Stage::lost && (one.second.exited || !one.second.agent);
  });
  if (stopping_ != 0 && all_are_lost) finish({signal_base + stopping_, ""});
}

void Server::end(int status, const std::string& reason, Time now) {
  finish({status, reason});
  settle(now);
}

void Server::finish(Finish finish) {
  if (finished()) return;
  // Processes that do not handle the signal end by it. One that takes too long is killed.
  if (stopping_ != 0 && finish.status == signal_base + stopping_) finish.reason.clear();
  if (stopping_ != 0 && finish.status == signal_base + SIGKILL)
    finish.status = signal_base + stopping_;
  finish.restarts = restarts_after(finish.status);
  finish.has_processes = processes_.any_running();
  outcome_.note_finished();
  generation_.stop();
  // Tell the caller before the agents: it watches them, and must know that the job is over before
  // they do.
  actions_.finish(finish);
  connections_.send_to_admitted(std::make_shared<const Message>(
      End{finish.status, finish.reason, finish.restarts, is_superseded_}));
}

/// True if the job is to start again. Not if its program cannot be run or hosts were missing: that
/// would only repeat. Not after a change of servers either: nobody is at the first one's address.
bool Server::restarts_after(int status) const {
  const bool is_failure =
      status != 0 && status != cannot_run && !has_started_late_ && !is_superseded_;
  const bool is_by_signal = is_ended_by_signal_ || passed_signals_.contains(status - signal_base);
  return is_failure && !is_by_signal && !options_.elastic && !options_.stands_by &&
         options_.restarts < options_.max_restarts;
}

}  // namespace kolo::internal::rendezvous
