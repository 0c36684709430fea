// SPDX-License-Identifier: Apache-2.0
// The half of the server that has processes started, and decides when the job is over.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

constexpr int signal_base = 128;
constexpr std::chrono::seconds patience_after_exit{1};
constexpr int max_signal = 64;

std::string how_it_ended(int status) {
  if (status > signal_base && status <= signal_base + max_signal)
    return fmt::format("signal {} has ended it", status - signal_base);
  if (status == 0) return "it has ended without leaving the session";
  return fmt::format("it has ended with status {}", status);
}

}  // namespace

// ---- agents ----

void Server::greet_agent(Link link, const Hello& hello, Time now) {
  const auto before = std::ranges::find_if(agents_, [&](const auto& entry) {
    return hello.process != 0 && entry.second.hello.process == hello.process;
  });
  if (before != agents_.end()) {
    const Link old = before->first;
    send(old, Refusal{"it has come again by another connection"});
    close(old);
    lose_agent(old, "it has come again", now);
  }
  Agent agent{.hello = hello, .heard = now};
  agent.slots.resize(static_cast<std::size_t>(hello.slots), 0);
  agents_.emplace(link, std::move(agent));
}

void Server::handle_agent(Link link, const Message& message, Time now) {
  agents_.at(link).heard = now;
  if (const auto* exited = std::get_if<Exited>(&message)) {
    on_exit(link, *exited, now);
  } else if (const auto* alive = std::get_if<Keepalive>(&message)) {
    send(link, *alive);
  } else if (const auto* removal = std::get_if<Removal>(&message)) {
    remove_agent(agents_.at(link), removal->reason);
  } else {
    close(link);
    lose_agent(link, "it sent a message that is not for an agent to send", now);
  }
}

void Server::remove_agent(Agent& agent, const std::string& reason) {
  if (std::exchange(agent.removing, true)) return;
  note(LogLevel::info, fmt::format("host {} is to be removed: {}", agent.hello.host, reason));
  dirty_ = true;
  announced_ = false;
  if (!options_.elastic)
    finish(1, reason);
  else if (number_ > 0 && !can_do_without_removed())
    note(LogLevel::warning,
         fmt::format("host {} stays until the job can do without it: it needs {} ranks",
                     agent.hello.host, options_.min_np));
}

void Server::keep_host(const std::string& host, Time now) {
  for (auto& [link, agent] : agents_)
    if (agent.hello.host == host && std::exchange(agent.removing, false))
      note(LogLevel::info, fmt::format("host {} stays", host));
  settle(now);
}

void Server::remove_host(const std::string& host, const std::string& reason, Time now) {
  for (auto& [link, agent] : agents_)
    if (agent.hello.host == host) remove_agent(agent, reason);
  settle(now);
}

void Server::on_signal(int number, Time now) {
  for (const auto& [link, agent] : agents_) send(link, Signal{number});
  if (number == SIGINT || number == SIGTERM || number == SIGHUP) finish(signal_base + number, "");
  settle(now);
}

void Server::end(int status, const std::string& reason, Time now) {
  finish(status, reason);
  settle(now);
}

void Server::on_exit(Link link, const Exited& exited, Time now) {
  Process* const process = find(exited.process);
  if (process == nullptr || process->agent != link || process->exited) return;
  std::ranges::replace(agents_.at(link).slots, process->id, ProcessId{0});
  process->exited = dirty_ = true;
  process->status = exited.status;
  // What it has sent last may still be on the way, until its connection closes.
  if (process->link && process->stage != Stage::left)
    exits_.emplace(process->id, now + patience_after_exit);
  else
    judge_exit(*process, now);
}

void Server::judge_exit(Process& process, Time now) {
  exits_.erase(process.id);
  if (process.stage == Stage::left) {
    if (process.status != 0 && late_status_ == 0) late_status_ = process.status;
  } else if (process.stage == Stage::launched && process.status == 0 && number_ == 0) {
    process.stage = Stage::left;  // perhaps a program without sessions
    ending_ = true;
  } else if (process.stage == Stage::lost) {
    process.reason += "; " + how_it_ended(process.status);
  } else {
    lose(process, how_it_ended(process.status), Fault::own, now);
  }
  finish_as(process);
}

/// A job that is not elastic ends as the first process that was lost.
void Server::finish_as(const Process& process) {
  if (!options_.elastic && process.id == first_lost_ && process.exited)
    finish(process.status == 0 ? 1 : process.status, process.reason);
}

/// Perhaps a child of the process still has its connection.
void Server::expire_exits(Time now) {
  std::vector<ProcessId> due;
  for (const auto& [id, until] : exits_)
    if (now >= until) due.push_back(id);
  for (const ProcessId id : due) {
    exits_.erase(id);
    if (Process* const process = find(id)) judge_exit(*process, now);
  }
}

void Server::lose_agent(Link link, const std::string& reason, Time now) {
  const auto found = agents_.find(link);
  if (found == agents_.end()) return;
  const Agent agent = std::move(found->second);
  agents_.erase(found);
  dirty_ = true;
  note(LogLevel::warning, fmt::format("the agent on {} is lost: {}", agent.hello.host, reason));
  cooldown_.fail(agent.hello.host, now);
  for (const ProcessId id : agent.slots) {
    Process* const process = find(id);
    if (process == nullptr) continue;
    process->exited = true;  // nobody will say so
    process->agent.reset();
    lose(*process, fmt::format("the agent on {} is lost: {}", agent.hello.host, reason),
         Fault::none, now);
  }
  if (!options_.elastic && !finished_)
    finish(1, fmt::format("the agent on {} is lost: {}", agent.hello.host, reason));
}

void Server::expire_leases(Time now) {
  std::vector<Link> silent;
  for (const auto& [link, agent] : agents_)
    if (now >= agent.heard + options_.lease) silent.push_back(link);
  for (const Link link : silent) {
    close(link);
    lose_agent(link,
               fmt::format("it sent nothing for {} s",
                           std::chrono::duration<double>(options_.lease).count()),
               now);
  }
}

std::vector<Link> Server::agents_in_order() const {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_)
    if (!agent.removing) links.push_back(link);
  std::ranges::stable_sort(links, {},
                           [&](Link link) { return agents_.at(link).hello.wanted_rank; });
  return links;
}

// ---- processes of agents ----

void Server::start_processes(Time now) {
  if (!options_.has_agents || finished_ || ending_) return;
  if (!started_)
    start_first(now);
  else if (options_.elastic)
    start_more(now);
}

/// All at once, so that each knows its rank and how many there are.
void Server::start_first(Time now) {
  const std::vector<Link> links = agents_in_order();
  int slots = 0;
  for (const Link link : links) slots += agents_.at(link).hello.slots;
  if (slots < (now < options_.start_timeout ? options_.np : options_.min_np)) {
    say_waiting(now);
    return;
  }
  started_ = true;
  started_at_ = now;
  for (const Link link : links) ++machines_[agents_.at(link).hello.machine];
  const int size = started_size_ = std::min(slots, options_.max_np);
  int rank = 0;
  for (const Link link : links) {
    Start start;
    const int local_size = std::min(agents_.at(link).hello.slots, size - rank);
    for (int i = 0; i < local_size; ++i) launch(link, start, rank++, size);
    for (Launch& each : start.launches) each.local_size = local_size;
    if (local_size > 0) send(link, std::move(start));
  }
}

void Server::say_waiting(Time now) {
  if (now < patience_for_hosts || std::exchange(said_waiting_, true)) return;
  std::string hosts;
  int slots = 0;
  for (const auto& [link, agent] : agents_) {
    slots += agent.hello.slots;
    hosts += fmt::format(" {}:{}", agent.hello.host, agent.hello.slots);
  }
  note(LogLevel::warning, fmt::format("waiting for hosts: {} of {} slots are available{}{}", slots,
                                      options_.np, hosts.empty() ? "" : ":", hosts));
}

void Server::start_more(Time now) {
  auto running = std::ranges::count_if(processes_, [](const auto& entry) {
    return entry.second.stage != Stage::left && entry.second.stage != Stage::lost;
  });
  for (const Link link : agents_in_order()) {
    if (running >= options_.max_np) return;
    const Agent& agent = agents_.at(link);
    if (cooldown_.rests(agent.hello.host, now)) continue;
    Start start;
    while (running < options_.max_np && std::ranges::count(agent.slots, ProcessId{0}) > 0) {
      launch(link, start, -1, options_.np);
      start.launches.back().local_size = agent.hello.slots;
      ++running;
    }
    if (!start.launches.empty()) send(link, std::move(start));
  }
}

void Server::launch(Link link, Start& start, std::int32_t rank, std::int32_t size) {
  Process process;
  process.id = ++last_process_;
  process.agent = link;
  if (rank >= 0) process.order = rank;
  const auto slot = std::ranges::find(agents_.at(link).slots, ProcessId{0});
  *slot = process.id;
  start.launches.push_back(
      {.process = process.id,
       .rank = rank,
       .size = size,
       .local_rank = static_cast<std::int32_t>(slot - agents_.at(link).slots.begin())});
  processes_.emplace(process.id, std::move(process));
}

/// An agent whose host goes away may end once it has no processes.
void Server::release_removed() {
  std::vector<Link> idle;
  for (const auto& [link, agent] : agents_)
    if (agent.removing && std::ranges::all_of(agent.slots, [](ProcessId id) { return id == 0; }))
      idle.push_back(link);
  for (const Link link : idle) {
    send(link, End{0, "the host is removed from the job"});
    close(link);
    agents_.erase(link);
  }
}

// ---- the end of the job ----

void Server::conclude() {
  if (finished_ || !dirty_) return;
  release_removed();
  bool living = false;     // some go on
  bool finishing = false;  // some have done their part, and end
  bool coming = false;
  for (const auto& [id, process] : processes_) {
    living |= is_living_member(process);
    finishing |= process.stage == Stage::left && process.agent && !process.exited;
    coming |= process.stage == Stage::launched || process.stage == Stage::greeted ||
              process.stage == Stage::waiting;
  }
  if (living || finishing) return;
  // The job ends as the first lost process has, which its agent will report.
  if (!options_.elastic && options_.has_agents && first_lost_ != 0) return;
  if (number_ > 0) {
    const Process* const lost = find(lost_last_);  // at the end of what it had to do, say
    if (lost != nullptr && lost->agent && !lost->exited) return;
    if (was_member_ && lost != nullptr)
      finish(status_of_last_loss(), lost->reason);
    else if (was_member_)
      finish(late_status_, late_status_ == 0 ? "" : how_it_ended(late_status_));
    else
      finish(status_of_last_loss(), "no process with the job's state is left");
    return;
  }
  // Perhaps there is no such program: others that are started will not fare better.
  if (options_.elastic && !coming && !greeted_ && first_loss_.status != 0)
    finish(first_loss_.status, first_loss_.reason);
  if (ending_ && !coming)
    finish(any_lost_ ? 1 : late_status_, any_lost_ ? "a process is lost" : "");
}

/// Never 0: the job has failed, even if it is not known how the process has ended.
int Server::status_of_last_loss() {
  const Process* const lost = find(lost_last_);
  return lost == nullptr || lost->status == 0 ? 1 : lost->status;
}

void Server::finish(int status, const std::string& reason) {
  if (finished_) return;
  finished_ = true;
  phase_ = phase_ == Phase::none ? Phase::none : Phase::broken;
  // Who watches the agents knows that the job is over before they end.
  actions_.emplace_back(Finish{status, reason});
  const auto message = std::make_shared<const Message>(End{status, reason});
  for (const auto& [link, peer] : peers_)
    if (peer.role) actions_.emplace_back(Send{link, message});
}

}  // namespace kolo::internal::rendezvous
