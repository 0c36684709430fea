// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/process_table.hpp"

#include <fmt/format.h>

#include <utility>

namespace kolo::internal::rendezvous {

std::string Process::name() const {
  const std::string what = rank >= 0 ? fmt::format("rank {}", rank) : "a new process";
  if (hello.pid == 0) return fmt::format("{} (number {})", what, id);
  return fmt::format("{} (process {} on {})", what, hello.pid, hello.host);
}

Process* ProcessTable::find(ProcessId id) {
  return const_cast<Process*>(std::as_const(*this).find(id));
}

const Process* ProcessTable::find(ProcessId id) const {
  const auto found = processes_.find(id);
  return found == processes_.end() ? nullptr : &found->second;
}

Process& ProcessTable::launch(Link agent, std::int32_t rank) {
  Process& process = processes_[++last_id_];
  process.id = last_id_;
  process.agent = agent;
  if (rank >= 0) process.order = rank;
  return process;
}

std::optional<Refusal> ProcessTable::find_refusal(const Hello& hello, bool job_has_begun) const {
  std::string reason = why_refused(hello, job_has_begun);
  return reason.empty() ? std::nullopt : std::optional(Refusal{std::move(reason)});
}

std::string ProcessTable::why_refused(const Hello& hello, bool job_has_begun) const {
  if (options_.has_agents) {
    const Process* const process = find(hello.process);
    return process != nullptr && process->stage == Stage::launched && !process->exited
               ? ""
               : "it is not a process of this job, or no longer one";
  }
  if (hello.wanted_rank < 0 || hello.wanted_rank >= options_.np)
    return fmt::format("rank {} does not exist in a job of {} ranks", hello.wanted_rank,
                       options_.np);
  for (const auto& [id, other] : processes_)
    if (other.order == hello.wanted_rank)
      return fmt::format("rank {} is taken by process {} on {}", hello.wanted_rank, other.hello.pid,
                         other.hello.host);
  return job_has_begun ? "the job has begun without it" : "";
}

Process& ProcessTable::greet(Link link, const Hello& hello) {
  const ProcessId id = options_.has_agents ? hello.process : ++last_id_;
  Process& process = processes_[id];
  process.id = id;
  process.link = link;
  process.hello = hello;
  if (!options_.has_agents) process.order = hello.wanted_rank;
  move(process, Stage::greeted);
  return process;
}

void ProcessTable::move(Process& process, Stage stage) {
  process.stage = stage;
  if (stage == Stage::waiting && process.age == 0)
    newcomers_.insert(process.id);
  else
    newcomers_.erase(process.id);
  dirty_ |= stage == Stage::left || stage == Stage::lost;
}

std::vector<ProcessId> ProcessTable::take_overdue(Time now) {
  std::vector<ProcessId> overdue;
  for (const auto& [id, until] : exits_)
    if (now >= until) overdue.push_back(id);
  for (const ProcessId id : overdue) exits_.erase(id);
  return overdue;
}

std::optional<Time> ProcessTable::next_time() const {
  std::optional<Time> next;
  for (const auto& [id, until] : exits_)
    if (!next || until < *next) next = until;
  return next;
}

/// Without agents, a process that has left stays in the table, so that no other process can take
/// its rank.
void ProcessTable::sweep() {
  if (!std::exchange(dirty_, false)) return;
  std::erase_if(processes_, [&](const auto& entry) {
    const Process& process = entry.second;
    if (process.link || (process.agent && !process.exited)) return false;
    if (process.stage == Stage::left) return options_.has_agents;
    return process.stage == Stage::lost;
  });
}

}  // namespace kolo::internal::rendezvous
