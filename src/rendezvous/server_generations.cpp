// SPDX-License-Identifier: Apache-2.0
// The half of the server that decides when a generation ends and who is in the next one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

// A session after the first one has little to do when it starts.
constexpr std::chrono::seconds longest_restart{120};
constexpr std::size_t room_for_headers = 1 << 20;  // in a result

}  // namespace

bool Server::is_living_member(const Process& process) const {
  return process.stage == Stage::member || (process.stage == Stage::waiting && process.age > 0);
}

bool Server::is_removed(const Process& process) const {
  const auto found = process.agent ? agents_.find(*process.agent) : agents_.end();
  return found != agents_.end() && found->second.removing;
}

// ---- collective calls ----

void Server::on(Process& process, const Contribution& part, Time now) {
  if (process.stage != Stage::member || part.generation != number_) {
    breach(process, "it makes a call in a generation whose member it is not", now);
    return;
  }
  if (phase_ != Phase::running) return;  // its interruption is on the way
  if (part.sequence != process.sequence++) {
    breach(process, "it makes a call that it cannot make", now);
    return;
  }
  Collective& call =
      collectives_
          .try_emplace(part.sequence,
                       Collective{.since = now, .parts{roster_.size(), std::nullopt}})
          .first->second;
  call.parts[static_cast<std::size_t>(process.rank)] = Payload{part.payload};
  ++call.count;
  call.bytes += part.payload.size();
  if (call.bytes > max_message - room_for_headers) {
    break_generation(fmt::format("gather_all collects more than {} MiB", max_message >> 20), {},
                     now);
    return;
  }
  for (const ProcessId id : roster_) {
    const Process* const other = find(id);
    if (other != nullptr && other->stage != Stage::left) continue;
    break_generation(fmt::format("a rank has left, and rank {} starts a session", process.rank), {},
                     now);
    return;
  }
  if (call.count == roster_.size()) deliver(part.sequence);
}

void Server::deliver(std::uint64_t sequence) {
  Collective call = std::move(collectives_.extract(sequence).mapped());
  Result result{.generation = number_, .sequence = sequence};
  for (std::optional<Payload>& part : call.parts) result.payloads.push_back(std::move(*part));
  const auto message = std::make_shared<const Message>(std::move(result));
  for (const ProcessId id : roster_)
    if (const Process* member = find(id); member != nullptr && member->link)
      actions_.emplace_back(Send{*member->link, message});
}

Time Server::collective_timeout() const {
  const Time most = options_.collective_timeout;
  return number_ > 1 ? std::min<Time>({most, options_.elastic_timeout, longest_restart}) : most;
}

// ---- the end of a generation ----

void Server::break_generation(const std::string& reason, const std::vector<std::int32_t>& ranks,
                              Time now) {
  phase_ = Phase::broken;
  meeting_since_ = now;
  collectives_.clear();
  if (!only_refuses_newcomers(ranks) && !only_misses_departed()) ++losses_;
  note(LogLevel::info, fmt::format("generation {} is over: {}", number_, reason));
  const auto message = std::make_shared<const Message>(Interruption{number_, ranks, reason});
  for (const ProcessId id : roster_)
    if (const Process* member = find(id);
        member != nullptr && member->stage == Stage::member && member->link)
      actions_.emplace_back(Send{*member->link, message});
}

/// Processes that join and do not fit cost the job nothing.
bool Server::only_refuses_newcomers(const std::vector<std::int32_t>& ranks) const {
  return number_ > 1 && !begun_ && !ranks.empty() &&
         std::ranges::all_of(ranks, [&](std::int32_t rank) {
           const auto found = processes_.find(roster_[static_cast<std::size_t>(rank)]);
           return found != processes_.end() && found->second.age == number_;
         });
}

/// Processes that have done their part are no loss.
bool Server::only_misses_departed() const {
  return !has_lost_ && std::ranges::any_of(roster_, [&](ProcessId id) {
    const auto found = processes_.find(id);
    return found == processes_.end() || found->second.stage == Stage::left;
  });
}

/// Ranks that keep the others waiting for too long are lost.
void Server::end_late(Time now) {
  if (phase_ == Phase::running && !collectives_.empty() &&
      now >= collectives_.begin()->second.since + collective_timeout()) {
    const Collective call = collectives_.begin()->second;
    for (std::size_t rank = 0; rank < call.parts.size(); ++rank)
      if (Process* late = find(roster_[rank]); late != nullptr && !call.parts[rank])
        lose(*late, "it did not take part in the start of the session", Fault::own, now);
  }
  if (!meeting_since_ || now < *meeting_since_ + options_.elastic_timeout) return;
  const std::vector<ProcessId> members = roster_;
  for (const ProcessId id : members)
    if (Process* late = find(id);
        late != nullptr && late->stage == Stage::member && !late->completed)
      lose(*late, "it did not join the new session in time", Fault::own, now);
  meet(now);
  if (finished_ || !meeting_since_ || now < *meeting_since_ + options_.elastic_timeout) return;
  if (phase_ == Phase::broken)
    finish(1, fmt::format("too few ranks are left: {} of at least {}",
                          candidates().survivors.size(), options_.min_np));
}

// ---- the next generation ----

bool Server::all_have_come() const {
  if (number_ > 0)
    return std::ranges::none_of(roster_, [&](ProcessId id) {
      const auto found = processes_.find(id);
      return found != processes_.end() && found->second.stage == Stage::member &&
             !found->second.completed;
    });
  return std::ranges::all_of(processes_, [](const auto& entry) {
    const Stage stage = entry.second.stage;
    return stage == Stage::waiting || stage == Stage::left || stage == Stage::lost;
  });
}

bool Server::first_generation_is_due(Time now) {
  const auto waiting = static_cast<int>(newcomers_.size());
  if (waiting >= std::min(options_.np, started_size_) && all_have_come()) return true;
  if (ending_ && waiting > 0 && all_have_come()) {
    if (options_.elastic && waiting >= options_.min_np) return true;
    finish(1, fmt::format("{} of {} processes have ended without a session, and the others wait "
                          "for them",
                          options_.np - waiting, options_.np));
    return false;
  }
  if (now < start_deadline()) return false;
  if (options_.elastic && waiting >= options_.min_np) return true;
  finish(1, fmt::format(
                "only {} of {} processes joined within {} s", waiting, options_.np,
                std::chrono::duration_cast<std::chrono::seconds>(options_.start_timeout).count()));
  return false;
}

Server::Candidates Server::candidates() {
  Candidates all;
  for (const ProcessId id : roster_)
    if (Process* const process = find(id); process != nullptr && process->stage == Stage::waiting)
      all.survivors.push_back(process);
  if (ending_ && number_ > 0) return all;
  for (const ProcessId id : newcomers_) all.newcomers.push_back(find(id));
  std::ranges::stable_sort(all.newcomers, {}, &Process::order);
  return all;
}

void Server::meet(Time now) {
  judge_stall(now);
  if (finished_ || (number_ > 0 && !meeting_since_)) return;
  if (number_ == 0 ? !first_generation_is_due(now) : !all_have_come()) return;
  Candidates all = candidates();
  if (number_ > 0 && all.survivors.empty()) {
    meeting_since_.reset();  // all others have done what they do together
    return;
  }
  if (state_is_lost(all.survivors)) {
    finish(
        status_of_last_loss(),
        fmt::format("no process with the job's state is left: {} commits were made", committed_));
    return;
  }
  if (options_.reset_limit >= 0 && losses_ > options_.reset_limit) {
    finish(1, fmt::format("the session was lost {} times, and the limit is {}", losses_,
                          options_.reset_limit));
    return;
  }
  dismiss_removed(all, now);
  const std::size_t count = all.survivors.size() + all.newcomers.size();
  // Where some have done their part, the others may do theirs, however few they are.
  const bool only_completes = options_.elastic && (was_member_ || completed_);
  if (count < static_cast<std::size_t>(options_.min_np) && !only_completes) {
    give_up_if_hopeless(count);
    return;
  }
  publish(all);
}

/// A survivor may lack the last commit, but not more: otherwise it has joined lately, and has
/// nothing to go on from.
/// A member may lack the last commit. If that is the first one, the others have not received it
/// from rank 0 yet, and begin as another rank.
bool Server::state_is_lost(const std::vector<Process*>& survivors) const {
  std::uint64_t newest = 0;
  for (const Process* process : survivors) newest = std::max(newest, process->commit);
  return number_ > 0 && newest + 1 < committed_;
}

void Server::give_up_if_hopeless(std::size_t candidates) {
  if (number_ == 0 || (options_.elastic && !ending_)) return;
  // The job ends as the lost process has, which its agent will report.
  if (!options_.elastic && options_.has_agents && first_lost_ != 0) return;
  finish(1, fmt::format("{} ranks are left, and the job needs {}", candidates, options_.min_np));
}

bool Server::can_do_without_removed() const {
  const auto stays = [&](ProcessId id) {
    const auto found = processes_.find(id);
    return found != processes_.end() && !is_removed(found->second) &&
           (is_living_member(found->second) || found->second.stage == Stage::waiting);
  };
  const auto members = std::ranges::count_if(roster_, stays);
  const auto newcomers = std::ranges::count_if(newcomers_, stays);
  return (number_ == 0 || members > 0) && members + newcomers >= options_.min_np;
}

/// Processes of hosts that go away are left out, unless the others are too few without them, or
/// have nothing to go on from.
void Server::dismiss_removed(Candidates& all, Time now) {
  if (!can_do_without_removed()) return;
  for (std::vector<Process*>* list : {&all.survivors, &all.newcomers})
    std::erase_if(*list, [&](Process* process) {
      if (!is_removed(*process)) return false;
      process->stage = Stage::greeted;  // in no generation: the last one ended in good order
      if (process->link) {
        send(*process->link, End{0, "this host is removed from it"});
        close(*std::exchange(process->link, std::nullopt));
      }
      lose(*process, "its host is removed from the job", Fault::none, now);
      return true;
    });
}

/// Members that need the others no more are in no further generation.
void Server::release_completed() {
  for (const ProcessId id : roster_) {
    Process* const process = find(id);
    if (process == nullptr || process->stage != Stage::member) continue;
    process->stage = Stage::left;
    was_member_ = dirty_ = true;
    lost_last_ = 0;
  }
}

/// Rank 0 is the eldest of those with the newest commit; the other survivors keep their order, and
/// newcomers come last.
void Server::publish(const Candidates& all) {
  std::vector<Process*> members = all.survivors;
  const auto first = std::ranges::max_element(members, [](const Process* a, const Process* b) {
    return std::pair(a->commit, b->age) < std::pair(b->commit, a->age);
  });
  if (first != members.end()) std::rotate(members.begin(), first, first + 1);
  for (Process* const process : all.newcomers)
    if (members.size() < static_cast<std::size_t>(options_.max_np)) members.push_back(process);

  release_completed();
  phase_ = Phase::running;
  begun_ = has_lost_ = false;
  stall_ = {};
  ++number_;
  meeting_since_.reset();
  announced_ = false;
  roster_.clear();
  Roster roster{.generation = number_};
  for (Process* const process : members) {
    process->stage = Stage::member;
    process->rank = static_cast<std::int32_t>(roster_.size());
    process->sequence = 0;
    if (process->age == 0) process->age = number_;
    newcomers_.erase(process->id);
    roster_.push_back(process->id);
    roster.members.push_back({process->id, process->hello.host, process->hello.machine,
                              process->hello.pid, process->commit});
  }
  note(LogLevel::info, fmt::format("generation {} has {} ranks", number_, roster_.size()));
  const auto message = std::make_shared<const Message>(std::move(roster));
  for (const Process* process : members) actions_.emplace_back(Send{*process->link, message});
}

// ---- changes in good order ----

std::optional<Time> Server::announcement_time() const {
  if (finished_ || phase_ != Phase::running || announced_ || ending_ || meeting_since_) return {};
  const auto is_leaving = [&](ProcessId id) {
    const auto found = processes_.find(id);
    return found != processes_.end() && is_removed(found->second);
  };
  const bool removing =
      std::ranges::any_of(agents_, [](const auto& entry) { return entry.second.removing; });
  if (removing && std::ranges::any_of(roster_, is_leaving) && can_do_without_removed())
    return last_time_;
  if (roster_.size() >= static_cast<std::size_t>(options_.max_np) || newcomers_.empty()) return {};
  std::optional<Time> first;
  for (const ProcessId id : newcomers_) {
    const Time joined = processes_.at(id).joined;
    if (!first || joined < *first) first = joined;
  }
  return *first + options_.growth_delay;
}

void Server::announce_if_due(Time now) {
  const std::optional<Time> time = announcement_time();
  if (!time || now < *time) return;
  announced_ = true;
  const Process* const root = find(roster_.front());
  if (root == nullptr || root->stage != Stage::member || !root->link) return;
  const std::size_t waiting = newcomers_.size();
  const std::string reason =
      waiting > 0 ? fmt::format("{} new processes wait", waiting) : "a host is to be removed";
  note(LogLevel::info, fmt::format("membership is to change: {}", reason));
  send(*root->link, Announcement{number_, reason});
}

}  // namespace kolo::internal::rendezvous
