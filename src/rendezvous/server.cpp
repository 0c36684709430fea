// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/proof.hpp"

namespace kolo::internal::rendezvous {
Server::Server(const ServerOptions& options, std::function<std::uint64_t()> random)
    : options_(options),
      random_(std::move(random)),
      cooldown_(options.min_cooldown, options.max_cooldown) {
  if (!options_.elastic) options_.min_np = options_.max_np = options_.np;
}

/// Of those that have said nothing the oldest; ranks of a large job come all at once.
std::optional<Link> Server::next_evicted() const {
  if (strangers_.size() < options_.max_strangers + static_cast<std::size_t>(options_.max_np))
    return std::nullopt;
  return std::ranges::min_element(strangers_, {},
                                  [&](const auto& entry) {
                                    return std::tuple(peers_.at(entry.first).hello.has_value(),
                                                      entry.second, entry.first);
                                  })
      ->first;
}

void Server::on_open(Link link, const std::string& from, Time now) {
  if (const auto evicted = next_evicted()) {
    note_refusal(peers_.at(*evicted).from, "too many connections have not identified themselves",
                 now);
    close(*evicted);
  }
  peers_.emplace(link, Peer{.from = from, .opened = now});
  strangers_.emplace(link, now);
}

void Server::on_message(Link link, const Message& message, Time now) {
  const auto found = peers_.find(link);
  if (found == peers_.end()) return;
  if (!found->second.role) {
    on_stranger(link, message, now);
  } else if (finished_) {
    return;
  } else if (*found->second.role == Role::agent) {
    handle_agent(link, message, now);
  } else if (Process* process = find(found->second.process)) {
    handle(*process, message, now);
  }
  settle(now);
}

void Server::on_close(Link link, const std::string& reason, Time now) {
  const auto found = peers_.find(link);
  if (found == peers_.end()) return;
  const Peer peer = found->second;
  peers_.erase(found);
  strangers_.erase(link);
  if (!peer.role) {
    note_refusal(peer.from, peer.hello ? "the secret is wrong, or it gave up: " + reason : reason,
                 now);
  } else if (finished_) {
    agents_.erase(link);
  } else if (*peer.role == Role::agent) {
    lose_agent(link, reason, now);
  } else if (Process* process = find(peer.process)) {
    process->link.reset();
    dirty_ = true;
    if (process->exited)
      judge_exit(*process, now);
    else
      lose(*process, reason, Fault::own, now);
  }
  settle(now);
}

void Server::on_time(Time now) {
  std::vector<Link> silent;
  for (const auto& [link, opened] : strangers_)
    if (now >= opened + options_.hello_timeout) silent.push_back(link);
  for (const Link link : silent) refuse(link, "it does not identify itself", now);
  if (!finished_) {
    expire_leases(now);
    expire_exits(now);
    end_late(now);
  }
  settle(now);
}

std::optional<Time> Server::next_time() const {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (const auto& [link, opened] : strangers_) consider(opened + options_.hello_timeout);
  if (finished_) return next;
  for (const auto& [link, agent] : agents_) consider(agent.heard + options_.lease);
  if (number_ == 0) consider(start_deadline());
  if (options_.has_agents && !started_ && !said_waiting_) consider(patience_for_hosts);
  if (meeting_since_) consider(*meeting_since_ + options_.elastic_timeout);
  for (const auto& [sequence, call] : collectives_) consider(call.since + collective_timeout());
  for (const auto& [process, until] : exits_) consider(until);
  consider(stall_.judged_at);
  consider(announcement_time());
  if (options_.elastic && started_) consider(cooldown_.next(last_time_));
  return next;
}

// ---- admission ----

void Server::on_stranger(Link link, const Message& message, Time now) {
  const Peer peer = peers_.at(link);
  const auto* const hello = std::get_if<Hello>(&message);
  const auto* const proof = std::get_if<Proof>(&message);
  if (!peer.hello && hello != nullptr)
    challenge(link, *hello);
  else if (!peer.hello)
    refuse(link, "its first message is not a greeting", now);
  else if (proof != nullptr && is_proof(*proof, options_.secret, peer.hello->nonce, peer.nonce))
    greet(link, *peer.hello, now);
  else
    refuse(link, "the secret is wrong", now);
}

void Server::challenge(Link link, const Hello& hello) {
  Bytes nonce(nonce_bytes);
  for (std::byte& byte : nonce) byte = static_cast<std::byte>(random_());
  Peer& peer = peers_.at(link);
  peer.hello = hello;
  peer.nonce = nonce;
  send(link, make_challenge(options_.secret, hello.nonce, nonce));
}

/// It knows the secret; others learn nothing.
void Server::greet(Link link, const Hello& hello, Time now) {
  if (const std::optional<Refusal> refusal = find_refusal(hello)) {
    // Whoever is to try again does so many times.
    const bool is_news = refusal->retry == Time{} || put_off_.insert(hello.process).second;
    if (is_news) note_refusal(peers_.at(link).from, refusal->reason, now);
    send(link, *refusal);
    close(link);
    return;
  }
  strangers_.erase(link);
  peers_.at(link).role = hello.role;
  if (hello.role == Role::agent)
    greet_agent(link, hello, now);
  else
    greet_process(link, hello);
  send(link, Welcome{options_.lease, peers_.at(link).process, options_.elastic});
}

void Server::greet_process(Link link, const Hello& hello) {
  const ProcessId id = options_.has_agents ? hello.process : ++last_process_;
  Process& process = processes_[id];
  process.id = id;
  process.link = link;
  process.stage = Stage::greeted;
  greeted_ = true;
  process.hello = hello;
  if (!options_.has_agents) process.order = hello.wanted_rank;
  peers_.at(link).process = id;
}

void Server::refuse(Link link, const std::string& reason, Time now) {
  note_refusal(peers_.at(link).from, reason, now);
  send(link, Refusal{reason});
  close(link);
}

// ---- processes ----

void Server::handle(Process& process, const Message& message, Time now) {
  if (const auto* join = std::get_if<Join>(&message)) {
    on(process, *join, now);
  } else if (const auto* part = std::get_if<Contribution>(&message)) {
    on(process, *part, now);
  } else if (const auto* begun = std::get_if<Begun>(&message)) {
    on(process, *begun);
  } else if (const auto* completed = std::get_if<Completed>(&message)) {
    on(process, *completed, now);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    on(process, *leave, now);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    lose(process, failed->reason, Fault::own, now);
  } else if (const auto* report = std::get_if<FailureReport>(&message)) {
    on(process, *report, now);
  } else if (!std::holds_alternative<Keepalive>(message)) {
    breach(process, "it sent a message that is not for a process to send", now);
  }
}

void Server::on(Process& process, const Join& join, Time now) {
  const bool is_member = process.stage == Stage::member;
  if (!is_member && process.stage != Stage::greeted) {
    breach(process, "it wants to join a second time", now);
    return;
  }
  if (join.generation != (is_member ? number_ : 0)) {
    breach(process,
           fmt::format("it comes from generation {} of the job, which is at {}", join.generation,
                       number_),
           now);
    return;
  }
  process.stage = Stage::waiting;
  process.completed = false;
  process.commit = join.commit;
  if (is_member) committed_ = std::max(committed_, join.commit);
  process.joined = now;
  if (!is_member) {
    newcomers_.insert(process.id);
    return;
  }
  if (phase_ == Phase::running && !join.orderly)
    break_generation(name_of(process) + " has lost its session", {}, now);
  if (!meeting_since_) meeting_since_ = now;
}

void Server::on(Process& process, const Begun& begun) {
  if (process.stage == Stage::member && begun.generation == number_) begun_ = true;
}

void Server::on(Process& process, const Completed& completed, Time now) {
  // The processes of a fixed job may open sessions afterwards.
  if (!options_.elastic || process.stage != Stage::member || completed.generation != number_)
    return;
  process.completed = ending_ = completed_ = true;
  // Those that have not come this far may wait for it.
  if (meeting_since_) meet(now);
}

void Server::on(Process& process, const Leave& /*leave*/, Time now) {
  const bool was_member = is_living_member(process);
  process.stage = Stage::left;
  newcomers_.erase(process.id);
  dirty_ = true;
  if (!was_member) return;
  ending_ = was_member_ = true;
  lost_last_ = 0;
  // Calls that the others have begun will never have its part.
  if (phase_ == Phase::running && !collectives_.empty())
    break_generation(name_of(process) + " has left while others start a session", {process.rank},
                     now);
}

void Server::breach(Process& process, const std::string& what, Time now) {
  lose(process, what, Fault::own, now);
}

void Server::lose(Process& process, const std::string& reason, Fault fault, Time now) {
  if (process.stage == Stage::lost || process.stage == Stage::left) return;
  const bool was_member = is_living_member(process);
  const std::string text = fmt::format("{} is lost: {}", name_of(process), reason);
  process.stage = Stage::lost;
  process.reason = text;
  newcomers_.erase(process.id);
  if (!any_lost_) first_loss_ = {process.status, text};
  if (was_member) lost_last_ = process.id;
  has_lost_ |= was_member;
  dirty_ = any_lost_ = true;
  if (process.link) {
    send(*process.link, Refusal{reason});
    close(*std::exchange(process.link, std::nullopt));
  }
  if (process.agent && !process.exited) send(*process.agent, Kill{process.id, reason});
  if (const auto agent = process.agent ? agents_.find(*process.agent) : agents_.end();
      agent != agents_.end() && fault == Fault::own)
    cooldown_.fail(agent->second.hello.host, now);
  note(options_.elastic ? LogLevel::warning : LogLevel::info, text);
  if (was_member && phase_ == Phase::running) break_generation(text, {process.rank}, now);
  exits_.erase(process.id);
  if (options_.elastic) return;
  if (first_lost_ == 0) first_lost_ = process.id;
  if (!process.agent) finish(1, text);
  finish_as(process);
}

// ---- shared ----

void Server::settle(Time now) {
  last_time_ = now;
  if (!finished_) {
    start_processes(now);
    meet(now);
    announce_if_due(now);
    conclude();
  }
  sweep();
}

/// A process is forgotten when nothing can come from it any more.
void Server::sweep() {
  if (!dirty_) return;
  dirty_ = false;
  std::erase_if(processes_, [&](const auto& entry) {
    const Process& process = entry.second;
    if (process.link || (process.agent && !process.exited)) return false;
    if (process.stage == Stage::left) return options_.has_agents;
    return process.stage == Stage::lost;
  });
}

void Server::send(Link link, Message message) {
  actions_.emplace_back(Send{link, std::make_shared<const Message>(std::move(message))});
}

void Server::close(Link link) {
  actions_.emplace_back(Close{link});
  peers_.erase(link);
  strangers_.erase(link);
}

void Server::note(LogLevel level, std::string text) {
  actions_.emplace_back(Note{level, std::move(text)});
}

void Server::note_refusal(const std::string& from, const std::string& reason, Time now) {
  if (auto line = refusals_.line(from, reason, now)) note(LogLevel::warning, std::move(*line));
}

std::string Server::name_of(const Process& process) const {
  const std::string what =
      process.rank >= 0 ? fmt::format("rank {}", process.rank) : std::string("a new process");
  if (process.hello.pid == 0) return fmt::format("{} (number {})", what, process.id);
  return fmt::format("{} (process {} on {})", what, process.hello.pid, process.hello.host);
}

Server::Process* Server::find(ProcessId id) {
  const auto found = processes_.find(id);
  return found == processes_.end() ? nullptr : &found->second;
}

}  // namespace kolo::internal::rendezvous
