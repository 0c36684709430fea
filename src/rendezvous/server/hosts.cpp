// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo::internal::rendezvous {

bool Agent::is_idle() const {
  return std::ranges::all_of(slots, [](ProcessId id) { return id == 0; });
}

// ---- agents ----

/// True if the agent's machine already has as many other agents as when the job began, and at least
/// one. Such an agent most likely belongs to another job with the same port.
bool Hosts::takes_part(const Hello& hello) const {
  if (hello.machine.empty()) return false;
  const auto others = std::ranges::count_if(agents_, [&](const auto& entry) {
    const Hello& other = entry.second.hello;
    return other.machine == hello.machine && (other.process == 0 || other.process != hello.process);
  });
  const auto at_start = machines_.find(hello.machine);
  return others >= std::max(1, at_start == machines_.end() ? 0 : at_start->second);
}

std::optional<Refusal> Hosts::find_refusal(const Hello& hello) const {
  if (!options_.has_agents) return Refusal{"this job has no agents"};
  if (!hello.job.empty() && hello.job != options_.job)
    return Refusal{
        fmt::format("this server runs job {}, but the agent belongs to job {}; use a different "
                    "port for each job",
                    options_.job, hello.job)};
  if (!started_ || !takes_part(hello)) return std::nullopt;
  if (!options_.elastic)
    return Refusal{
        "the job has begun, and this host already takes part; use a different port for each job"};
  // The other agent may have been killed or cut off. Then its lease ends soon, so a retry succeeds.
  return Refusal{"this host already takes part; use a different port for each job",
                 options_.lease + options_.lease / 4};
}

std::optional<Link> Hosts::find_earlier(const Hello& hello) const {
  const auto found = std::ranges::find_if(agents_, [&](const auto& entry) {
    return hello.process != 0 && entry.second.hello.process == hello.process;
  });
  return found == agents_.end() ? std::nullopt : std::optional(found->first);
}

void Hosts::add(Link link, const Hello& hello, Time now) {
  Agent agent{.hello = hello, .heard = now, .answered = questions_};
  agent.slots.resize(static_cast<std::size_t>(hello.slots), 0);
  agents_.emplace(link, std::move(agent));
  changed_ = true;
}

Agent* Hosts::find(Link link) {
  const auto found = agents_.find(link);
  return found == agents_.end() ? nullptr : &found->second;
}

std::optional<Agent> Hosts::take(Link link) {
  auto node = agents_.extract(link);
  changed_ = true;
  return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
}

std::vector<Link> Hosts::silent(Time now) const {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_)
    if (now >= agent.heard + options_.lease) links.push_back(link);
  return links;
}

std::vector<Link> Hosts::find_host(const std::string& name) const {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_)
    if (agent.hello.host == name) links.push_back(link);
  return links;
}

bool Hosts::is_any_removed() const {
  return std::ranges::any_of(agents_, [](const auto& entry) { return entry.second.removing; });
}

bool Hosts::is_removed(const Process& process) const {
  const auto found = process.agent ? agents_.find(*process.agent) : agents_.end();
  return found != agents_.end() && found->second.removing;
}

std::vector<Link> Hosts::idle_removed() const {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_)
    if (agent.removing && agent.is_idle()) links.push_back(link);
  return links;
}

std::vector<Link> Hosts::staying_in_order() const {
  std::vector<Link> links;
  for (const auto& [link, agent] : agents_)
    if (!agent.removing) links.push_back(link);
  std::ranges::stable_sort(links, {},
                           [&](Link link) { return agents_.at(link).hello.wanted_rank; });
  return links;
}

std::optional<Time> Hosts::next_time(Time now) const {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (const auto& [link, agent] : agents_) consider(agent.heard + options_.lease);
  if (options_.has_agents && !started_ && !noted_waiting_) consider(patience_for_hosts);
  if (options_.wants_standby && !started_ && now < patience_for_standby)
    consider(patience_for_standby);
  if (options_.elastic && started_) consider(cooldown_.next(now));
  return next;
}

// ---- processes that never reach a session ----

int Hosts::failed_starts() const {
  int count = 0;
  for (const auto& [host, failed] : failed_starts_) count += failed;
  return count;
}

bool Hosts::only_fail() const {
  return std::ranges::all_of(agents_, [&](const auto& entry) {
    const Agent& agent = entry.second;
    const auto failed = failed_starts_.find(agent.hello.host);
    if (failed != failed_starts_.end() &&
        failed->second >= failed_starts_per_slot * agent.hello.slots)
      return true;
    return agent.removing || std::ranges::all_of(agent.slots, [&](ProcessId id) {
             const Process* const process = processes_.find(id);
             return process != nullptr && process->stage == Stage::waiting;
           });
  });
}

// ---- what the launcher needs to know ----

/// The slots that the agents lack for max_np processes. A host in its cooldown has only those of
/// its running processes, and one that leaves has none: other hosts can take their processes over.
int Hosts::missing_slots(Time now) const {
  std::ptrdiff_t missing = options_.max_np;
  for (const auto& [link, agent] : agents_) {
    if (agent.removing) continue;
    const bool rests = cooldown_.rests(agent.hello.host, now);
    missing -= std::ssize(agent.slots) - (rests ? std::ranges::count(agent.slots, 0U) : 0);
  }
  return static_cast<int>(std::max<std::ptrdiff_t>(missing, 0));
}

void Hosts::tell_agents(bool grows, Time now) {
  changed_ = false;
  AgentsChanged current{.missing_slots = grows ? missing_slots(now) : 0};
  for (const auto& [link, agent] : agents_)
    if (!agent.removing) current.agents.push_back(agent.hello.process);
  std::ranges::sort(current.agents);
  if (current == told_) return;
  told_ = current;
  actions_.change_agents(std::move(current));
}

// ---- the processes of agents ----

void Hosts::start_processes(Time now) {
  if (!started_)
    start_first(now);
  else if (options_.elastic)
    start_more(now);
}

/// Starts the first processes all at once, so that each knows its rank and the number of ranks.
void Hosts::start_first(Time now) {
  const std::vector<Link> links = staying_in_order();
  // The agent in the server's own process comes soon, and without it there is no electorate.
  const auto is_own = [&](Link link) { return agents_.at(link).hello.wanted_rank == 0; };
  if (options_.wants_standby && std::ranges::none_of(links, is_own)) return;
  int slots = 0;
  for (const Link link : links) slots += agents_.at(link).hello.slots;
  if (slots < (now < options_.start_timeout ? options_.np : options_.min_np) ||
      awaits_standby(links, now)) {
    note_waiting(now);
    return;
  }
  started_ = true;
  started_at_ = now;
  for (const Link link : links) ++machines_[agents_.at(link).hello.machine];
  elect();
  const int size = started_size_ = std::min(slots, options_.max_np);
  int rank = 0;
  for (const Link link : links) {
    Start start;
    const int local_size = std::min(agents_.at(link).hello.slots, size - rank);
    for (int i = 0; i < local_size; ++i) launch(link, start, rank++, size);
    for (Launch& each : start.launches) each.local_size = local_size;
    if (local_size > 0) actions_.send(link, std::move(start));
  }
}

// ---- the standby ----

/// Fixes the agents that may let the standby take over, if there is one. A job that is not elastic
/// cannot go on without the ranks of the server's host, so it needs no standby if there are any.
void Hosts::elect() {
  Electorate chosen;
  int ranks_of_server = 0;
  for (const auto& [link, agent] : agents_) {
    const Hello& hello = agent.hello;
    chosen.voters.push_back(hello.process);
    if (hello.stands_by) chosen.standby = hello.process;
    if (hello.wanted_rank != 0) continue;
    chosen.server = hello.process;
    ranks_of_server = hello.slots;
  }
  if (options_.wants_standby && chosen.standby == 0)
    actions_.note(LogLevel::warning,
                  "no host of the first session stands by: the job ends if this server is lost");
  if (chosen.standby == 0 || chosen.server == 0) return;
  if (!options_.elastic && ranks_of_server > 0) return;
  electorate_ = chosen;
  for (const auto& [link, agent] : agents_) actions_.send(link, chosen);
}

/// True if the job could begin, but only without a standby, whose host may be about to come.
bool Hosts::awaits_standby(const std::vector<Link>& links, Time now) const {
  return options_.wants_standby &&
         now < std::min<Time>(patience_for_standby, options_.start_timeout) &&
         std::ranges::none_of(links, [&](Link link) { return agents_.at(link).hello.stands_by; });
}

void Hosts::doubt() {
  if (!electorate_) return;
  ++questions_;
  for (const auto& [link, agent] : agents_) actions_.send(link, Keepalive{questions_});
}

bool Hosts::surely_rules(Time now) const {
  return is_quorum_of([&](const Agent& agent) {
    return now < agent.heard + options_.lease / 2 && agent.answered == questions_;
  });
}

bool Hosts::has_quorum(Time now, Time patience) const {
  return is_quorum_of([&](const Agent& agent) { return now < agent.heard + patience; });
}

bool Hosts::is_quorum_of(const std::function<bool(const Agent&)>& is_near) const {
  if (!electorate_) return true;
  std::set<ProcessId> near = renounced_;
  for (const auto& [link, agent] : agents_)
    if (is_near(agent)) near.insert(agent.hello.process);
  return is_quorum(*electorate_, [&](ProcessId voter) { return near.contains(voter); });
}

void Hosts::adopt(Link link, const Hello& hello, std::vector<ProcessId> slots, Time now) {
  started_ = true;
  started_at_ = now;
  slots.resize(static_cast<std::size_t>(hello.slots), 0);
  agents_.emplace(link, Agent{.hello = hello, .heard = now, .slots = std::move(slots)});
  ++machines_[hello.machine];
}

void Hosts::note_waiting(Time now) {
  if (now < patience_for_hosts || std::exchange(noted_waiting_, true)) return;
  std::string hosts;
  int slots = 0;
  for (const auto& [link, agent] : agents_) {
    slots += agent.hello.slots;
    hosts += fmt::format(" {}:{}", agent.hello.host, agent.hello.slots);
  }
  const bool lacks_standby =
      options_.wants_standby &&
      std::ranges::none_of(agents_, [](const auto& entry) { return entry.second.hello.stands_by; });
  actions_.note(LogLevel::warning,
                fmt::format("waiting for hosts: {} of {} slots are available{}{}{}", slots,
                            options_.np, hosts.empty() ? "" : ":", hosts,
                            lacks_standby ? "; the host of the standby is missing" : ""));
}

/// True if a process of this agent has exited and it is not known yet whether it has failed, which
/// starts a cooldown.
bool Hosts::may_yet_fail(Link link) const {
  return std::ranges::any_of(processes_.all(), [&](const auto& entry) {
    const Process& process = entry.second;
    return process.agent == link && process.exited && process.stage != Stage::left &&
           process.stage != Stage::lost;
  });
}

void Hosts::start_more(Time now) {
  auto running = std::ranges::count_if(processes_.all(), [](const auto& entry) {
    return entry.second.stage != Stage::left && entry.second.stage != Stage::lost;
  });
  for (const Link link : staying_in_order()) {
    if (running >= options_.max_np) return;
    const Agent& agent = agents_.at(link);
    if (cooldown_.rests(agent.hello.host, now) || may_yet_fail(link)) continue;
    Start start;
    while (running < options_.max_np && std::ranges::count(agent.slots, ProcessId{0}) > 0) {
      launch(link, start, -1, options_.np);
      start.launches.back().local_size = agent.hello.slots;
      ++running;
    }
    if (!start.launches.empty()) actions_.send(link, std::move(start));
  }
}

void Hosts::launch(Link link, Start& start, std::int32_t rank, std::int32_t size) {
  Agent& agent = agents_.at(link);
  std::vector<ProcessId>& slots = agent.slots;
  const auto slot = std::ranges::find(slots, ProcessId{0});
  *slot = processes_.launch(link, agent.hello.host, rank).id;
  start.launches.push_back({.process = *slot,
                            .rank = rank,
                            .size = size,
                            .local_rank = static_cast<std::int32_t>(slot - slots.begin()),
                            .restarts = options_.restarts});
}

}  // namespace kolo::internal::rendezvous
