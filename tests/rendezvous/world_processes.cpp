// SPDX-License-Identifier: Apache-2.0
// The simulated processes: each joins, makes the calls with which a session starts, and trains.
#include <algorithm>
#include <utility>

#include "world.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t calls = 3;  // the last one exchanges the commits
constexpr Time patience = 20s;      // with ranks that do not come to an agreement

Bytes payload_of(std::uint64_t number) {
  Bytes bytes(sizeof number);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(std::exchange(number, number >> 8));
  return bytes;
}

std::uint64_t number_in(const Bytes& bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    number = number << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return number;
}

}  // namespace

std::size_t World::index_of(ProcessId id) const { return by_id_.at(id); }

void World::start_process(std::size_t host, ProcessId id, int wanted_rank) {
  const std::size_t index = processes_.size();
  processes_.push_back({.id = id, .host = host});
  if (id != 0) by_id_[id] = index;
  if (now_ < agents_[host].cut_until || agents_[host].to_go) blame(index);
  at(now_ + any(100ms), [this, index, id, wanted_rank] {
    Proc& process = processes_[index];
    if (process.ended) return;
    process.link = open(Channel::Owner::process, index, process.host);
    Hello message = hello();
    message.process = id;
    message.host = agents_[process.host].host;
    message.wanted_rank = wanted_rank;
    message.pid = static_cast<std::int32_t>(index + 1);
    introduce(process.link, message);
  });
}

void World::to_process(std::size_t index, const SharedMessage& message) {
  Proc& process = processes_[index];
  if (process.ended) return;
  if (process.stopped) {
    process.inbox.push_back(message);
    return;
  }
  if (const auto* step = std::get_if<HandshakeStep>(message.get())) {
    on_step(process.link, *step);
  } else if (std::holds_alternative<Welcome>(*message)) {
    process.stage = Stage::joining;
    at(now_ + any(50ms), [this, index] { meet(index, false); });
  } else if (std::holds_alternative<Roster>(*message)) {
    on_roster(index, message);
  } else if (const auto* result = std::get_if<Result>(message.get())) {
    on_result(index, *result);
  } else if (const auto* over = std::get_if<Interruption>(message.get())) {
    on_interruption(index, *over);
  } else if (const auto* change = std::get_if<Announcement>(message.get())) {
    process.announced = change->generation == process.generation;
  } else if (process.stage != Stage::done) {  // a refusal, or the end
    end_process(index, 1);
  }
}

void World::wake(std::size_t index) {
  Proc& process = processes_[index];
  if (process.ended) return;
  process.stopped = false;
  for (const auto& what : std::exchange(process.later, {})) what();
  for (const SharedMessage& message : std::exchange(process.inbox, {})) to_process(index, message);
  if (!process.ended && process.stage == Stage::training) arrive(index);
}

void World::on_roster(std::size_t index, const SharedMessage& message) {
  Proc& process = processes_[index];
  const auto& roster = std::get<Roster>(*message);
  const auto place = std::ranges::find(roster.members, process.id, &Member::process);
  process.rank = static_cast<std::int32_t>(place - roster.members.begin());
  process.generation = roster.generation;
  process.roster = message;
  process.announced = false;
  process.stage = Stage::starting_session;
  at(now_ + any(20ms),
     [this, index, generation = roster.generation] { call(index, generation, 0); });
}

void World::call(std::size_t index, GenerationNumber generation, std::uint64_t sequence) {
  Proc& process = processes_[index];
  if (process.ended || process.stage != Stage::starting_session || process.generation != generation)
    return;
  if (process.stopped) {
    process.later.emplace_back(
        [this, index, generation, sequence] { call(index, generation, sequence); });
    return;
  }
  Contribution part{.generation = process.generation, .sequence = sequence};
  part.payload = payload_of(sequence == 2 ? process.commit : process.id * 100 + sequence);
  send_up(process.link, part);
}

void World::on_result(std::size_t index, const Result& result) {
  Proc& process = processes_[index];
  if (process.stage != Stage::starting_session || result.generation != process.generation) return;
  if (result.sequence + 1 < calls) {
    call(index, process.generation, result.sequence + 1);
    return;
  }
  const std::uint64_t newest = number_in(result.payloads.front().bytes);
  if (newest < process.commit) throw Violation("newest", "a commit is lost");
  process.commit = newest;
  process.stage = Stage::training;
  at(now_ + any(plan_.step), [this, index] { arrive(index); });
}

void World::on_interruption(std::size_t index, const Interruption& interruption) {
  Proc& process = processes_[index];
  const bool runs = process.stage == Stage::starting_session || process.stage == Stage::training;
  if (!runs || interruption.generation != process.generation) return;
  process.stage = Stage::joining;
  at(now_ + any(50ms), [this, index] { meet(index, false); });
}

void World::meet(std::size_t index, bool orderly) {
  Proc& process = processes_[index];
  if (process.ended || process.hangs) return;
  process.stage = Stage::joining;
  if (process.stopped) {
    process.later.emplace_back([this, index, orderly] { meet(index, orderly); });
    return;
  }
  send_up(process.link, Join{process.generation, process.commit, orderly});
}

// ---- training: all agree before any of them commits ----

void World::arrive(std::size_t index) {
  Proc& process = processes_[index];
  if (process.ended || process.stopped || process.stage != Stage::training) return;
  const auto key = std::pair(process.generation, process.commit + 1);
  Agreement& agreement = agreements_[key];
  if (agreement.passed) return;
  if (agreement.arrived.empty())
    at(now_ + patience, [this, key] { report_failure(key.first, key.second); });
  agreement.arrived.insert(index);
  agreement.change |= process.rank == 0 && process.announced;
  pass_if_complete(key.first, key.second);
}

void World::pass_if_complete(GenerationNumber generation, std::uint64_t next) {
  Agreement& agreement = agreements_[{generation, next}];
  if (agreement.passed || agreement.arrived.empty()) return;
  const Proc& any_member = processes_[*agreement.arrived.begin()];
  if (any_member.generation != generation ||
      agreement.arrived.size() != std::get<Roster>(*any_member.roster).members.size())
    return;
  for (const std::size_t index : agreement.arrived) {
    const Proc& process = processes_[index];
    // One that already meets the others again has broken its connections to them.
    if (process.ended || process.stage != Stage::training || process.generation != generation)
      return;
    if (const Time until = agents_[process.host].cut_until; until > now_) {
      at(until, [this, generation, next] { pass_if_complete(generation, next); });
      return;
    }
  }
  agreement.passed = true;
  for (const std::size_t index : agreement.arrived)
    at(now_ + any(plan_.delay), [this, index, generation, next, change = agreement.change] {
      agreed(index, generation, next, change);
    });
}

void World::agreed(std::size_t index, GenerationNumber generation, std::uint64_t next,
                   bool change) {
  Proc& process = processes_[index];
  if (process.ended || process.stage != Stage::training || process.generation != generation) return;
  if (process.stopped) {
    process.later.emplace_back(
        [this, index, generation, next, change] { agreed(index, generation, next, change); });
    return;
  }
  if (change) {
    meet(index, true);
    return;
  }
  process.commit = next;
  if (next < plan_.commits) {
    at(now_ + any(plan_.step), [this, index] { arrive(index); });
    return;
  }
  process.stage = Stage::done;
  send_up(process.link, Leave{generation});
  ++done_;
  at(now_ + any(1s), [this, index] { end_process(index, 0); });
}

/// Each waits for the next rank: who misses somebody waits for one that waits itself.
void World::report_failure(GenerationNumber generation, std::uint64_t next) {
  const Agreement& agreement = agreements_[{generation, next}];
  if (agreement.passed) return;
  for (const std::size_t index : agreement.arrived) {
    const Proc& process = processes_[index];
    if (process.ended || process.stopped || process.generation != generation ||
        process.stage != Stage::training)
      continue;
    const auto size = static_cast<std::int32_t>(std::get<Roster>(*process.roster).members.size());
    if (agreement.arrived.size() == static_cast<std::size_t>(size)) return;  // a host is cut off
    send_up(process.link, FailureReport{.generation = generation,
                                        .ranks = {(process.rank + 1) % size},
                                        .reason = "it does nothing",
                                        .stalled = true});
  }
}

// ---- the end of a process ----

void World::end_process(std::size_t index, int status) {
  Proc& process = processes_[index];
  if (std::exchange(process.ended, true)) return;
  if (process.link != 0) close_up(process.link);
  const Agent& agent = agents_[process.host];
  if (!plan_.options.has_agents || !agent.alive) return;
  at(now_ + any(5ms), [this, index, status] {
    const Agent& its = agents_[processes_[index].host];
    if (its.alive) send_up(its.link, Exited{processes_[index].id, status});
  });
}

/// A process that was closed out may try to come back.
void World::closed_out(std::size_t index) {
  Proc& process = processes_[index];
  if (process.ended) return;
  if (process.stopped) {
    at(now_ + 1s, [this, index] { end_process(index, 1); });
    return;
  }
  if (!plan_.rejoins || std::exchange(process.rejoins, true) || !plan_.options.has_agents) {
    end_process(index, 1);
    return;
  }
  process.link = open(Channel::Owner::process, index, process.host);
  Hello message = hello();
  message.process = process.id;
  send_up(process.link, message);
  at(now_ + 30s, [this, index] { end_process(index, 1); });
}

}  // namespace kolo::internal::rendezvous
