// SPDX-License-Identifier: Apache-2.0
// Whom the server refuses, of those that know the secret.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "rendezvous/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

// For the next job at this address, while the last agents of this one end.
constexpr std::chrono::hours until_the_next_job{24};

}  // namespace

/// As many others of its machine take part as when the job began, or one.
bool Server::takes_part(const Hello& agent) const {
  if (agent.machine.empty()) return false;
  const auto others = std::ranges::count_if(agents_, [&](const auto& entry) {
    const Hello& other = entry.second.hello;
    return other.machine == agent.machine && (other.process == 0 || other.process != agent.process);
  });
  const auto at_start = machines_.find(agent.machine);
  return others >= std::max(1, at_start == machines_.end() ? 0 : at_start->second);
}

std::optional<Refusal> Server::find_refusal(const Hello& hello) const {
  if (finished_) return Refusal{"the job is over", until_the_next_job};
  if (hello.version != options_.version)
    return Refusal{fmt::format("it uses Kolo {}, and this job Kolo {}: use one version everywhere",
                               hello.version, options_.version)};
  if (hello.role == Role::agent) return find_refusal_of_agent(hello);
  if (std::string reason = why_refused(hello); !reason.empty()) return Refusal{std::move(reason)};
  return std::nullopt;
}

std::optional<Refusal> Server::find_refusal_of_agent(const Hello& agent) const {
  if (!options_.has_agents) return Refusal{"this job has no agents"};
  if (agent.slots <= 0) return Refusal{"an agent without slots"};
  if (!agent.job.empty() && agent.job != options_.job)
    return Refusal{
        fmt::format("this server runs job {}, but the agent belongs to job {}; use a different "
                    "port for each job",
                    options_.job, agent.job)};
  if (!started_ || !takes_part(agent)) return std::nullopt;
  if (!options_.elastic)
    return Refusal{
        "the job has begun, and this host already takes part; use a different port for each job"};
  // The other one may have been killed, or cut off: then its lease ends.
  return Refusal{"this host already takes part; use a different port for each job",
                 options_.lease + options_.lease / 4};
}

std::string Server::why_refused(const Hello& process) const {
  if (options_.has_agents) {
    const auto found = processes_.find(process.process);
    return found != processes_.end() && found->second.stage == Stage::launched &&
                   !found->second.exited
               ? ""
               : "it is not a process of this job, or no longer one";
  }
  if (process.wanted_rank < 0 || process.wanted_rank >= options_.np)
    return fmt::format("rank {} does not exist in a job of {} ranks", process.wanted_rank,
                       options_.np);
  for (const auto& [id, other] : processes_)
    if (other.order == process.wanted_rank)
      return fmt::format("rank {} is taken by process {} on {}", process.wanted_rank,
                         other.hello.pid, other.hello.host);
  return number_ == 0 ? "" : "the job has begun without it";
}

}  // namespace kolo::internal::rendezvous
