// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/inheritance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

namespace kolo::internal::rendezvous {
namespace {

void adopt_host(const Inheritance::Host& host, const std::set<ProcessId>& members,
                ProcessTable& processes, Hosts& hosts, Time now) {
  std::vector<ProcessId> slots(static_cast<std::size_t>(host.hello.slots), 0);
  for (const Held& held : host.processes) {
    const bool has_ended = held.slot < 0;
    if ((has_ended && !members.contains(held.process)) || held.slot >= host.hello.slots) continue;
    Process& process = processes.adopt(held.process);
    process.agent = host.link;
    process.host = host.hello.host;
    process.exited = false;
    process.ended_unheard = has_ended;
    if (held.rank >= 0) process.order = held.rank;
    if (!has_ended) slots.at(static_cast<std::size_t>(held.slot)) = held.process;
  }
  hosts.adopt(host.link, host.hello, std::move(slots), now);
}

}  // namespace

std::string Inheritance::why_nothing_goes_on() const {
  std::ptrdiff_t held = 0;
  for (const Host& host : hosts)
    held += std::ranges::count_if(host.processes, [](const Held& each) { return each.slot >= 0; });
  if (processes.empty() && held > 0)
    return fmt::format(
        "the first rendezvous server is lost, and none of the {} processes on the other hosts has "
        "reached this one",
        held);
  return "the first rendezvous server was lost before a session began";
}

void adopt(const Inheritance& all, ProcessTable& processes, Hosts& hosts, Generation& generation,
           JobOutcome& outcome, Time now) {
  const std::set<ProcessId> members(all.members.begin(), all.members.end());
  for (const ProcessId id : members) processes.adopt(id).exited = true;  // unless a host has it
  for (const Inheritance::Host& host : all.hosts) adopt_host(host, members, processes, hosts, now);
  for (const Inheritance::Adopted& each : all.processes) {
    Process& process = processes.adopt(each.id);
    process.link = each.link;
    process.hello = each.hello;
    process.age = each.standing.age;
    processes.move(process, Stage::greeted);
    process.completed = each.standing.completed;
    if (process.completed) outcome.note_completed();
  }
  outcome.note_greeted();
  if (all.generation > 0) generation.adopt(all.generation, all.members);
}

}  // namespace kolo::internal::rendezvous
