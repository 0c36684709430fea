// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/take_over.hpp"

#include <fmt/format.h>

#include <chrono>

#include "rendezvous/server/inheritance.hpp"

namespace kolo::internal::rendezvous {
namespace {

// An agent that no server has accepted yet keeps looking for the one that rules.
constexpr std::chrono::hours until_it_rules{24};

constexpr const char* reason_of_succession =
    "the first rendezvous server is lost, and this one has taken over";

}  // namespace

void TakeOver::greet(Link link, const Hello& hello, Time now) {
  const bool is_other_job = !hello.job.empty() && hello.job != options_.job;
  if (hello.version != options_.version || (hello.role == Role::agent && is_other_job))
    return connections_.turn_away(
        link, Refusal{"it belongs to another job, or has another version of Kolo"}, now);
  if (hello.role == Role::process) {
    forget(hello.process);
    connections_.admit(link, hello.role, hello.process);
    onlookers_.emplace(link, Onlooker{hello});
    if (rules()) actions_.send(link, Succession{reason_of_succession});
  } else if (hello.votes) {
    connections_.admit(link, hello.role, 0);
    voters_.emplace(link, Voter{hello});
  } else {
    connections_.turn_away(
        link, Refusal{"this kolorun only stands by", until_it_rules, guards_job()}, now);
  }
}

void TakeOver::on_message(Link link, const Message& message, Time now) {
  if (const auto onlooker = onlookers_.find(link); onlooker != onlookers_.end()) {
    if (const auto* const standing = std::get_if<Standing>(&message))
      onlooker->second.standing = *standing;
    else
      messages_.emplace_back(link, message);
  } else if (const auto voter = voters_.find(link); voter != voters_.end()) {
    if (const auto* const vote = std::get_if<Vote>(&message)) {
      voter->second.vote = *vote;
      voter->second.server_heard = now - std::min(vote->silence, options_.lease);
      count(now);
    } else if (const auto* const alive = std::get_if<Keepalive>(&message)) {
      actions_.send(link, *alive);
    } else {
      if (const auto* const exited = std::get_if<Exited>(&message)) note_end(link, exited->process);
      messages_.emplace_back(link, message);
    }
  }
}

/// The process has ended before it could say where it stands.
void TakeOver::note_end(Link agent, ProcessId process) {
  std::optional<Vote>& vote = voters_.at(agent).vote;
  if (!vote) return;
  for (Held& held : vote->processes)
    if (held.process == process) held.slot = -1;
}

/// The process has come again, because its earlier connection has failed.
void TakeOver::forget(ProcessId process) {
  departed_.erase(process);
  std::erase_if(onlookers_, [&](const auto& entry) {
    const bool is_same = entry.second.hello.process == process;
    if (is_same) connections_.close(entry.first);
    return is_same;
  });
}

void TakeOver::on_close(Link link) {
  voters_.erase(link);
  const auto onlooker = onlookers_.find(link);
  if (onlooker == onlookers_.end()) return;
  departed_.insert(onlooker->second.hello.process);
  onlookers_.erase(onlooker);
}

bool TakeOver::has_vote_of(ProcessId voter) const {
  return std::ranges::any_of(voters_, [&](const auto& entry) {
    return entry.second.vote && entry.second.hello.process == voter;
  });
}

bool TakeOver::is_held(ProcessId process) const {
  return std::ranges::any_of(voters_, [&](const auto& entry) {
    return entry.second.vote &&
           std::ranges::any_of(entry.second.vote->processes, [&](const Held& held) {
             return held.process == process && held.slot >= 0;
           });
  });
}

/// True if a job runs that may turn to this standby. Nobody may begin it anew elsewhere.
bool TakeOver::guards_job() const {
  return !onlookers_.empty() || std::ranges::any_of(voters_, [](const auto& entry) {
    return entry.second.vote.has_value();
  });
}

/// Rules from now on if the votes suffice. Each vote is for good: its agent does not return to the
/// lost server, which therefore has too few for ever.
/// Each vote may delay the first session further, also one that comes later: by hearing the server
/// it shows that the server lives.
void TakeOver::count(Time now) {
  if (!rules()) {  // some who have voted may have left
    has_ended_ = true;
    server_heard_ = Time::min();
  }
  for (const auto& [link, voter] : voters_) {
    if (!voter.vote) continue;
    const Vote& vote = *voter.vote;
    if (!electorate_) electorate_ = Electorate{vote.voters, vote.server, vote.standby};
    has_ended_ &= vote.has_ended;
    server_heard_ = std::max(server_heard_, voter.server_heard);
  }
  if (!rules()) {
    if (!electorate_ || !is_quorum(*electorate_, [&](ProcessId id) { return has_vote_of(id); }))
      return;
    ruling_since_ = now;
    actions_.rule();
    actions_.note(LogLevel::warning, reason_of_succession);
    for (const auto& [link, onlooker] : onlookers_)
      actions_.send(link, Succession{reason_of_succession});
  }
  for (auto& [link, voter] : voters_)
    if (voter.vote && !std::exchange(voter.is_welcome, true))
      actions_.send(link, Welcome{options_.lease, 0, options_.elastic});
}

/// The time by which a lost server that is only cut off has ended: the lease, in which it has
/// missed its agents, and some more. The other agents have as long to come.
Time TakeOver::deadline() const {
  const Time lease = options_.lease;
  return has_ended_ ? *ruling_since_ + lease
                    : std::max(server_heard_ + lease + lease / 4, *ruling_since_);
}

bool TakeOver::is_complete(Time now) const {
  if (!rules()) return false;
  if (now >= deadline()) return true;
  // The server was in the process of its agent.
  const bool all_are_here = std::ranges::all_of(electorate_->voters, [&](ProcessId voter) {
    return has_vote_of(voter) || (voter == electorate_->server && has_ended_);
  });
  return all_are_here &&
         std::ranges::none_of(departed_, [&](ProcessId id) { return is_held(id); }) &&
         std::ranges::all_of(onlookers_, [&](const auto& entry) {
           return entry.second.standing || !is_held(entry.second.hello.process);
         });
}

std::optional<Time> TakeOver::next_time() const {
  return rules() ? std::optional(deadline()) : std::nullopt;
}

Inheritance TakeOver::inherit() {
  Inheritance all;
  for (const auto& [link, voter] : voters_)
    if (voter.vote) all.hosts.push_back({link, voter.hello, voter.vote->processes});
  for (const auto& [link, onlooker] : onlookers_) {
    const ProcessId id = onlooker.hello.process;
    if (!onlooker.standing || !is_held(id)) {
      actions_.send(link, Refusal{"its host is lost, or it has come too late"});
      connections_.close(link);
      continue;
    }
    all.processes.push_back({id, link, onlooker.hello, *onlooker.standing});
    if (onlooker.standing->generation <= all.generation) continue;
    all.generation = onlooker.standing->generation;
    all.members = onlooker.standing->members;
  }
  // Members that have all ended meanwhile can tell nothing more, but their agents can.
  if (all.generation == 0)
    for (const Inheritance::Host& host : all.hosts)
      for (const Held& held : host.processes)
        if (held.slot < 0) all.members.push_back(held.process);
  if (all.generation == 0 && !all.members.empty()) all.generation = 1;
  all.messages = std::move(messages_);
  return all;
}

}  // namespace kolo::internal::rendezvous
