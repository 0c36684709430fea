// SPDX-License-Identifier: Apache-2.0
// The simulated agents, and faults.
#include <algorithm>
#include <utility>

#include "world.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Time kill_grace = 5s;
constexpr int killed = 137;

}  // namespace

void World::start_agent(std::size_t index) {
  greet_as_agent(index);
  keep_alive(index);
}

void World::greet_as_agent(std::size_t index) {
  Agent& agent = agents_[index];
  agent.heard = now_;
  agent.welcome = false;
  agent.link = open(Channel::Owner::agent, index, index);
  Hello message = hello();
  message.role = Role::agent;
  message.process = index + 1;
  message.host = message.machine = agent.host;
  message.slots = agent.slots;
  message.wanted_rank = static_cast<std::int32_t>(index);
  message.job = agent.of_other_job ? "that" : plan_.options.job;
  introduce(agent.link, message);
}

void World::on_refusal(std::size_t index, const Refusal& refusal) {
  Agent& agent = agents_[index];
  if (agent.refused_until == Time{}) agent.refused_until = now_ + refusal.retry;
  if (judge_.status() || now_ >= agent.refused_until) return end_agent(index, 1);
  at(now_ + 1s, [this, index] {
    if (agents_[index].alive) greet_as_agent(index);
  });
}

/// The agent is welcome: once the job has begun, no more of its host take part than before, or one.
void World::require_no_twin(std::size_t index) {
  Agent& welcome = agents_[index];
  if (welcome.of_other_job) throw Violation("one agent", "an agent of another job");
  welcome.from_start = server_.generation() == 0;
  if (welcome.from_start) return;
  int before = 0;
  int others = 0;
  for (const Agent& agent : agents_) {
    if (&agent == &welcome || agent.host != welcome.host || agent.link == 0) continue;
    const Channel& channel = channels_.at(agent.link);
    before += agent.from_start ? 1 : 0;
    others += channel.welcome && channel.server_open ? 1 : 0;
  }
  if (others >= std::max(1, before)) throw Violation("one agent", "too many of " + welcome.host);
}

/// An agent without a connection ends its processes before the server goes on without them.
void World::keep_alive(std::size_t index) {
  const Agent& agent = agents_[index];
  if (!agent.alive) return;
  if (now_ - agent.heard > plan_.options.lease / 2) {
    blame_host(index);
    end_agent(index, 1);
    return;
  }
  if (agent.welcome) send_up(agent.link, Keepalive{});
  at(now_ + plan_.options.lease / 8, [this, index] { keep_alive(index); });
}

void World::to_agent(std::size_t index, const Message& message) {
  agents_[index].heard = now_;
  agents_[index].welcome |= std::holds_alternative<Welcome>(message);
  if (const auto* start = std::get_if<Start>(&message)) {
    for (const Launch& launch : start->launches) start_process(index, launch.process, launch.rank);
  } else if (const auto* kill = std::get_if<Kill>(&message)) {
    at(now_ + any(kill_grace),
       [this, process = index_of(kill->process)] { end_process(process, killed); });
  } else if (std::holds_alternative<End>(message)) {
    end_agent(index, killed);
  } else if (const auto* refusal = std::get_if<Refusal>(&message)) {
    on_refusal(index, *refusal);
  }
}

void World::end_agent(std::size_t index, int status) {
  Agent& agent = agents_[index];
  if (!std::exchange(agent.alive, false)) return;
  for (std::size_t process = 0; process < processes_.size(); ++process)
    if (processes_[process].host == index) end_process(process, status);
  close_up(agent.link);
}

// ---- faults ----

std::vector<std::size_t> World::living() const {
  std::vector<std::size_t> living;
  for (std::size_t index = 0; index < processes_.size(); ++index)
    if (!processes_[index].ended && processes_[index].stage != Stage::done) living.push_back(index);
  return living;
}

void World::blame(std::size_t process) {
  faults_ = processes_[process].at_fault = true;
  if (processes_[process].id != 0) judge_.on_fault(processes_[process].id);
}

void World::blame_host(std::size_t index) {
  faults_ = true;
  for (std::size_t process = 0; process < processes_.size(); ++process)
    if (processes_[process].host == index) blame(process);
}

void World::inject(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kill:
    case FaultKind::stop:
    case FaultKind::fail:
    case FaultKind::quit:
    case FaultKind::hang: return inject_into_process(fault);
    case FaultKind::agent:
    case FaultKind::cut:
    case FaultKind::removal: return inject_into_host(fault);
    case FaultKind::host:
      if (judge_.status()) return;
      agents_.push_back({.host = "host" + std::to_string(agents_.size()),
                         .slots = 1 + static_cast<int>(fault.which % 4)});
      return start_agent(agents_.size() - 1);
    case FaultKind::twin:
      if (judge_.status() || !plan_.options.has_agents) return;
      agents_.push_back({.host = agents_[fault.which % agents_.size()].host,
                         .slots = 1 + static_cast<int>(fault.which % 4),
                         .of_other_job = fault.which % 3 == 0});
      return start_agent(agents_.size() - 1);
    case FaultKind::stranger: return stranger(fault);
  }
}

void World::inject_into_process(const Fault& fault) {
  const std::vector<std::size_t> candidates = living();
  if (candidates.empty()) return;
  const std::size_t index = candidates[fault.which % candidates.size()];
  Proc& process = processes_[index];
  blame(index);
  if (fault.kind == FaultKind::kill) end_process(index, killed);
  if (fault.kind == FaultKind::quit) end_process(index, 0);
  if (fault.kind == FaultKind::hang) {
    process.hangs = true;
    end_useless_later(index);
  }
  if (fault.kind == FaultKind::fail) {
    if (process.link != 0) send_up(process.link, Failed{"an exception"});
    at(now_ + any(1s), [this, index] { end_process(index, 1); });
  }
  if (fault.kind == FaultKind::stop) {
    process.stopped = true;
    if (fault.which % 2 == 0) at(now_ + fault.length, [this, index] { wake(index); });
    end_useless_later(index);
  }
}

/// The user does that, if nobody else has: perhaps no other process waits for it.
void World::end_useless_later(std::size_t index) {
  at(now_ + 300s, [this, index] {
    const Proc& process = processes_[index];
    if (process.stopped || process.hangs) end_process(index, killed);
  });
}

/// The first host is the server's.
void World::inject_into_host(const Fault& fault) {
  if (agents_.size() < 2) return;
  const std::size_t index = 1 + fault.which % (agents_.size() - 1);
  Agent& agent = agents_[index];
  if (!agent.alive || !agent.welcome) return;
  blame_host(index);
  if (fault.kind == FaultKind::agent) end_agent(index, killed);
  agent.to_go |= fault.kind == FaultKind::removal;
  if (fault.kind == FaultKind::removal) send_up(agent.link, Removal{"the host is to go"});
  if (fault.kind == FaultKind::cut) agent.cut_until = now_ + fault.length;
}

/// Somebody who does not know the secret, or says nothing, or too much too early.
void World::stranger(const Fault& fault) {
  const Link link = open(Channel::Owner::stranger, 0, 0);
  Hello message = hello();
  message.role = fault.which % 2 == 0 ? Role::agent : Role::process;
  message.slots = 4;
  message.process = 1;
  message.wanted_rank = 0;
  if (fault.which % 5 == 0) introduce(link, message);
  if (fault.which % 5 == 1) send_up(link, Join{});
  if (fault.which % 5 == 2) send_up(link, End{0, ""});
  if (fault.which % 5 == 3) close_up(link);
  if (fault.which % 5 == 4) send_up(link, message);
}

}  // namespace kolo::internal::rendezvous
