// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

namespace kolo::internal::rendezvous {
namespace {

constexpr std::chrono::seconds patience_after_exit{1};
// Agents that connect after the job is over keep trying this long, until the next job starts at
// this address.
constexpr std::chrono::hours until_the_next_job{24};

ServerOptions complete(ServerOptions options) {
  if (!options.elastic) options.min_np = options.max_np = options.np;
  return options;
}

}  // namespace

Server::Server(const ServerOptions& options, std::function<std::uint64_t()> random)
    : options_(complete(options)), connections_(options_, std::move(random), actions_) {
  if (options_.stands_by) take_over_.emplace(options_, connections_, actions_);
}

// ---- connections ----

void Server::on_message(Link link, const Message& message, Time now) {
  const Peer* const peer = connections_.find(link);
  if (peer == nullptr) return;
  if (take_over_) return stand_by(link, *peer, message, now);
  if (!peer->role) {
    if (const auto hello = connections_.identify(link, message, now)) greet(link, *hello, now);
  } else if (finished()) {
    // The others report what they waited for when they notice the first failure, which ends the
    // job.
    const auto* const missed = std::get_if<RanksMissed>(&message);
    if (Process* const victim = missed == nullptr ? nullptr : processes_.find(peer->process))
      on(*victim, *missed);
    return;
  } else if (Agent* const agent = hosts_.find(link)) {
    handle_agent(link, *agent, message, now);
  } else if (Process* const process = processes_.find(peer->process)) {
    handle(*process, message, now);
  }
  settle(now);
}

void Server::on_close(Link link, const std::string& reason, Time now) {
  if (connections_.find(link) == nullptr) return;
  const std::optional<Peer> peer = connections_.drop(link, reason, now);
  if (take_over_) {
    take_over_->on_close(link);
    return take_over_if_due(now);
  }
  if (peer && finished()) {
    static_cast<void>(hosts_.take(link));
  } else if (peer && *peer->role == Role::agent) {
    lose_agent(link, reason, now);
  } else if (Process* const process = peer ? processes_.find(peer->process) : nullptr) {
    process->link.reset();
    processes_.mark_dirty();
    if (process->exited)
      judge_exit(*process, now);
    else
      lose(*process, reason, Fault::own, now);
  }
  settle(now);
}

void Server::stand_by(Link link, const Peer& peer, const Message& message, Time now) {
  if (peer.role) {
    take_over_->on_message(link, message, now);
  } else if (const auto hello = connections_.identify(link, message, now)) {
    take_over_->greet(link, *hello, now);
  }
  take_over_if_due(now);
}

std::optional<Refusal> Server::find_refusal(const Hello& hello) const {
  if (finished() || (stopping_ != 0 && hello.role == Role::agent))
    return Refusal{"the job is over", until_the_next_job};
  if (hello.version != options_.version)
    return Refusal{fmt::format("it uses Kolo {}, and this job Kolo {}: use one version everywhere",
                               hello.version, options_.version)};
  if (hello.votes) return Refusal{"the job goes on without this host, whose agent was late"};
  if (hello.role == Role::agent) return hosts_.find_refusal(hello);
  return processes_.find_refusal(hello, generation() > 0);
}

/// Admits or refuses a peer that has proved that it knows the secret. Other peers learn nothing
/// about the job.
void Server::greet(Link link, const Hello& hello, Time now) {
  if (const std::optional<Refusal> refusal = find_refusal(hello)) {
    connections_.turn_away(link, *refusal, now);
    return;
  }
  ProcessId id = 0;
  if (hello.role == Role::agent) {
    if (const std::optional<Link> earlier = hosts_.find_earlier(hello)) {
      actions_.send(*earlier, Refusal{"it has come again by another connection"});
      connections_.close(*earlier);
      lose_agent(*earlier, "it has come again", now);
      // The loss ends a job that is not elastic, and the new connection has not been told of it.
      if (finished())
        return connections_.turn_away(link, Refusal{"the job is over", until_the_next_job}, now);
    }
    hosts_.add(link, hello, now);
  } else {
    id = processes_.greet(link, hello).id;
    outcome_.note_greeted();
  }
  connections_.admit(link, hello.role, id);
  actions_.send(link, Welcome{options_.lease, id, options_.elastic});
}

// ---- agents ----

void Server::handle_agent(Link link, Agent& agent, const Message& message, Time now) {
  agent.heard = now;
  if (const auto* exited = std::get_if<Exited>(&message)) {
    on_exit(link, agent, *exited, now);
  } else if (const auto* alive = std::get_if<Keepalive>(&message)) {
    if (alive->count == 0)
      actions_.send(link, *alive);
    else
      agent.answered = alive->count;
  } else if (const auto* removal = std::get_if<Removal>(&message)) {
    hosts_.note_renounced(agent);
    remove_agent(agent, removal->reason);
  } else {
    connections_.close(link);
    lose_agent(link, "it sent a message that is not for an agent to send", now);
  }
}

void Server::on_exit(Link link, Agent& agent, const Exited& exited, Time now) {
  Process* const process = processes_.find(exited.process);
  if (process == nullptr || process->agent != link || process->exited) return;
  std::ranges::replace(agent.slots, process->id, ProcessId{0});
  process->exited = true;
  process->status = exited.status;
  process->detail = exited.detail;
  process->last_lines = exited.last_lines;
  is_ended_by_signal_ |= exited.by_signal;
  processes_.mark_dirty();
  // The last messages of the process may still be under way until its connection closes.
  if (process->link && process->stage != Stage::left)
    processes_.await_close(*process, now + patience_after_exit);
  else
    judge_exit(*process, now);
}

void Server::judge_exit(Process& process, Time now) {
  processes_.end_awaiting_close(process);
  if (process.stage == Stage::left) {
    outcome_.note_late_exit(process.status);
  } else if (process.stage == Stage::launched && process.status == 0 && generation() == 0) {
    processes_.move(process, Stage::left);
    outcome_.note_end_without_session(process);
  } else if (process.ended_unheard && process.status == 0) {
    on(process, Leave{}, now);
  } else if (process.stage == Stage::lost) {
    process.reason += "; " + process.describe_end();
  } else {
    lose(process, process.describe_end(), Fault::own, now);
  }
  if (process.stage == Stage::lost && process.age == 0) end_crash_loop(process);
  finish_if_ended_by(process, now);
}

void Server::remove_agent(Agent& agent, const std::string& reason) {
  if (stopping_ != 0) return;
  if (std::exchange(agent.removing, true)) return;
  actions_.note(LogLevel::info,
                fmt::format("host {} is to be removed: {}", agent.hello.host, reason));
  processes_.mark_dirty();
  generation_.forget_announcement();
  if (!options_.elastic)
    finish({1, reason});
  else if (generation() > 0 && !generation_.can_do_without_removed())
    actions_.note(LogLevel::warning,
                  fmt::format("host {} stays until the job can do without it: it needs {} ranks",
                              agent.hello.host, options_.min_np));
}

void Server::lose_agent(Link link, const std::string& reason, Time now) {
  const std::optional<Agent> agent = hosts_.take(link);
  if (!agent) return;
  const std::string text = fmt::format("the agent on {} is lost: {}{}", agent->hello.host, reason,
                                       options_.elastic ? "" : ranks_of(*agent));
  processes_.mark_dirty();
  actions_.note(LogLevel::warning, text);
  if (agent->hello.slots > 0) hosts_.cool_down(*agent, now);
  for (const ProcessId id : agent->slots) {
    Process* const process = processes_.find(id);
    if (process == nullptr) continue;
    process->exited = true;  // no agent will report it
    process->agent.reset();
  }
  if (!options_.elastic) stop_if_superseded(now, options_.lease / 2);
  // First, so that the job's end is that of the host, and not of one of its processes.
  if (!options_.elastic && agent->hello.slots > 0) finish({1, text});
  for (const ProcessId id : agent->slots)
    if (Process* const process = processes_.find(id)) lose(*process, text, Fault::none, now);
}

/// The ranks of a host, for a message about its loss.
std::string Server::ranks_of(const Agent& agent) const {
  Names ranks;
  for (const ProcessId id : agent.slots)
    if (const Process* const process = processes_.find(id); process != nullptr)
      if (const std::int32_t rank = process->known_rank(); rank >= 0)
        ranks.add(fmt::format("rank {}", rank));
  return ranks.after("; with it: ");
}

void Server::end_by_host(const std::string& host, int status, const std::string& reason, Time now) {
  std::string text = reason;
  for (const Link link : hosts_.find_host(host)) text += ranks_of(*hosts_.find(link));
  end(status, text, now);
}

void Server::remove_host(const std::string& host, const std::string& reason, Time now) {
  for (const Link link : hosts_.find_host(host)) remove_agent(*hosts_.find(link), reason);
  settle(now);
}

void Server::keep_host(const std::string& host, Time now) {
  for (const Link link : hosts_.find_host(host))
    if (std::exchange(hosts_.find(link)->removing, false)) {
      processes_.mark_dirty();
      actions_.note(LogLevel::info, fmt::format("host {} stays", host));
    }
  settle(now);
}

void Server::on_signal(int number, Time now) {
  const bool is_second = std::ranges::find(held_signals_, SIGTERM) != held_signals_.end();
  if (take_over_ && number != SIGINT && number != SIGHUP && !(number == SIGTERM && is_second))
    return held_signals_.push_back(number);  // a stop in good order needs the processes
  for (const auto& [link, agent] : hosts_.agents()) actions_.send(link, Signal{number});
  const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP;
  is_ended_by_signal_ |= ends;
  passed_signals_.insert(number);
  if (number == SIGTERM && stopping_ == 0 && processes_.any_running())
    begin_stopping(number);
  else if (ends)
    finish({signal_base + number, ""});
  settle(now);
}

/// From now on the job ends as its processes do. No host leaves before the others: a scheduler may
/// have signalled all of them.
void Server::begin_stopping(int number) {
  stopping_ = number;
  for (const auto& [link, agent] : hosts_.agents()) hosts_.find(link)->removing = false;
  generation_.forget_announcement();
}

/// Ends this server if the hosts that it has heard within `patience` are too few for it to rule.
void Server::stop_if_superseded(Time now, Time patience) {
  if (finished() || hosts_.has_quorum(now, patience)) return;
  stop_as_superseded(fmt::format(
      "this server has lost half of the job's {} hosts or more, so that the standby may "
      "have taken over",
      hosts_.electorate()->voters.size()));
}

/// Ends this server, and not the job: agents that it still reaches turn to the standby.
void Server::stop_as_superseded(const std::string& reason) {
  is_superseded_ = true;
  finish({1, reason});
}

// ---- processes ----

void Server::handle(Process& process, const Message& message, Time now) {
  if (const auto* join = std::get_if<Join>(&message)) {
    on(process, *join, now);
  } else if (const auto* part = std::get_if<Contribution>(&message)) {
    on(process, *part, now);
  } else if (const auto* begun = std::get_if<Begun>(&message)) {
    if (process.stage == Stage::member && begun->generation == generation())
      generation_.note_begun();
  } else if (const auto* completed = std::get_if<Completed>(&message)) {
    on(process, *completed, now);
  } else if (const auto* own = std::get_if<SessionFailed>(&message)) {
    on(process, *own);
  } else if (const auto* missed = std::get_if<RanksMissed>(&message)) {
    on(process, *missed);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    on(process, *leave, now);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    lose(process, failed->reason, Fault::own, now);
  } else if (const auto* report = std::get_if<FailureReport>(&message)) {
    on(process, *report, now);
  } else if (std::holds_alternative<Succession>(message) && hosts_.electorate()) {
    stop_as_superseded("processes have left this server for the standby, which has taken over");
  } else if (!std::holds_alternative<Keepalive>(message)) {
    lose(process, "it sent a message that is not for a process to send", Fault::own, now);
  }
}

void Server::on(Process& process, const Join& join, Time now) {
  const bool is_member = process.stage == Stage::member;
  if (!is_member && process.stage != Stage::greeted)
    return lose(process, "it wants to join a second time", Fault::own, now);
  if (join.generation != (is_member ? generation() : 0))
    return lose(process,
                fmt::format("it comes from generation {} of the job, which is at {}",
                            join.generation, generation()),
                Fault::own, now);
  processes_.move(process, Stage::waiting);
  process.completed = false;
  process.own_failure.clear();
  outcome_.forget_own_failure(process);
  if (std::exchange(process.is_victim, false)) waits_.clear();
  process.missed.clear();
  process.commit = join.commit;
  process.joined = now;
  if (!is_member) return;
  outcome_.note_commit(join.commit);
  if (generation_.is_running() && !join.orderly)
    generation_.break_up(process.name() + " has lost its session", {}, now);
  generation_.begin_meeting(now);
}

void Server::on(Process& process, const Contribution& part, Time now) {
  if (const auto breach = generation_.contribute(process, part, now))
    lose(process, *breach, Fault::own, now);
}

void Server::on(Process& process, const Completed& completed, Time now) {
  // Ignored in jobs that are not elastic, whose processes may start further sessions afterwards.
  if (!options_.elastic || process.stage != Stage::member || completed.generation != generation())
    return;
  process.completed = true;
  outcome_.note_completed();
  // Other members may already wait in the meeting for this process.
  if (generation_.is_meeting()) meet(now);
}

void Server::on(Process& process, const SessionFailed& failed) {
  if (options_.elastic || process.stage != Stage::member || !process.own_failure.empty()) return;
  process.own_failure = failed.reason;
  outcome_.note_own_failure(process);
}

void Server::on(Process& process, const RanksMissed& missed) {
  if (options_.elastic || missed.generation != generation()) return;
  if (process.is_victim || process.rank < 0) return;
  process.is_victim = true;
  for (const std::int32_t rank : missed.ranks)
    if (const Process* const other = generation_.member(rank)) process.missed.push_back(other->id);
  waits_.note(process.rank, missed.operation);
}

void Server::on(Process& process, const Leave& /*leave*/, Time now) {
  const bool was_member = process.is_living_member();
  outcome_.forget_own_failure(process);
  processes_.move(process, Stage::left);
  if (!was_member) return;
  outcome_.note_departure();
  // Calls that other ranks have begun can never complete without this process.
  if (generation_.is_running() && generation_.has_calls())
    generation_.break_up(process.name() + " has left while others start a session", {process.rank},
                         now);
}

void Server::on(Process& process, const FailureReport& report, Time now) {
  if (report.generation != generation() || !process.is_living_member() || process.completed) return;
  for (const std::int32_t rank : report.ranks) {
    Process* const reported = generation_.member(rank);
    if (reported == nullptr || reported == &process || !reported->is_living_member()) continue;
    if (report.stalled && !reported->completed)
      stalls_.report(process.id, reported->id, report.reason, now);
    else if (!report.stalled && reported->stage == Stage::member)
      lose(*reported, report.reason, Fault::own, now);
  }
}

}  // namespace kolo::internal::rendezvous
