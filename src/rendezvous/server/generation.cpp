// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace kolo::internal::rendezvous {
namespace {

// Sessions after the first one start quickly, so their calls time out sooner.
constexpr std::chrono::seconds max_restart_call{120};
constexpr std::size_t room_for_headers = 1 << 20;  // reserved in a result besides the payloads

}  // namespace

Process* Generation::member(std::int32_t rank) {
  const auto index = static_cast<std::size_t>(rank);
  return index < roster_.size() ? processes_.find(roster_[index]) : nullptr;
}

void Generation::send_to_members(Message message,
                                 const std::function<bool(const Process&)>& is_to) {
  const auto shared = std::make_shared<const Message>(std::move(message));
  for (const ProcessId id : roster_)
    if (const Process* const process = processes_.find(id);
        process != nullptr && process->link && is_to(*process))
      actions_.send(*process->link, shared);
}

std::optional<Time> Generation::next_time() const {
  std::optional<Time> next;
  if (meeting_since_) next = *meeting_since_ + options_.elastic_timeout;
  if (const auto* call = calls_.oldest())
    next = std::min(next.value_or(Time::max()), call->since + call_timeout());
  return next;
}

// ---- collective calls ----

std::optional<std::string> Generation::contribute(Process& process, const Contribution& part,
                                                  Time now) {
  if (process.stage != Stage::member || part.generation != number_)
    return "it makes a call in a generation whose member it is not";
  if (!is_running()) return std::nullopt;  // the interruption is on its way to the process
  if (part.sequence != process.sequence++) return "it makes a call that it cannot make";
  const CollectiveCalls::Call& call = calls_.add(process.rank, part, now);
  const bool has_left = std::ranges::any_of(roster_, [&](ProcessId id) {
    const Process* const other = processes_.find(id);
    return other == nullptr || other->stage == Stage::left;
  });
  if (call.bytes > max_message - room_for_headers)
    break_up(fmt::format("gather_all collects more than {} MiB", max_message >> 20), {}, now);
  else if (has_left)
    break_up(fmt::format("a rank has left, and rank {} starts a session", process.rank), {}, now);
  else if (call.count == roster_.size())
    deliver(part.sequence);
  return std::nullopt;
}

void Generation::deliver(std::uint64_t sequence) {
  send_to_members(
      Result{.generation = number_, .sequence = sequence, .payloads = calls_.take(sequence)},
      [](const Process&) { return true; });
}

Time Generation::call_timeout() const {
  const Time timeout = options_.collective_timeout;
  return number_ > 1 ? std::min<Time>({timeout, options_.elastic_timeout, max_restart_call})
                     : timeout;
}

std::vector<Process*> Generation::late_in_calls(Time now) {
  const CollectiveCalls::Call* const call = calls_.oldest();
  if (!is_running() || call == nullptr || now < call->since + call_timeout()) return {};
  std::vector<Process*> late;
  for (std::size_t rank = 0; rank < call->parts.size(); ++rank)
    if (Process* const process = processes_.find(roster_[rank]); process && !call->parts[rank])
      late.push_back(process);
  return late;
}

// ---- the end of the generation ----

void Generation::break_up(const std::string& reason, const std::vector<std::int32_t>& ranks,
                          Time now) {
  phase_ = Phase::broken;
  meeting_since_ = now;
  calls_.clear();
  if (!only_refuses_newcomers(ranks) && !only_misses_departed()) ++losses_;
  actions_.note(LogLevel::info, fmt::format("generation {} is over: {}", number_, reason));
  send_to_members(Interruption{number_, ranks, reason},
                  [](const Process& process) { return process.stage == Stage::member; });
}

void Generation::stop() {
  if (phase_ == Phase::running) phase_ = Phase::broken;
}

/// True if only incompatible newcomers end the generation before its session has begun. The job has
/// lost nothing then.
bool Generation::only_refuses_newcomers(const std::vector<std::int32_t>& ranks) const {
  return number_ > 1 && !begun_ && !ranks.empty() &&
         std::ranges::all_of(ranks, [&](std::int32_t rank) {
           const Process* const process = processes_.find(roster_[static_cast<std::size_t>(rank)]);
           return process != nullptr && process->age == number_;
         });
}

/// True if the generation ends because some members have finished their part, which is no loss.
bool Generation::only_misses_departed() const {
  return !has_lost_ && std::ranges::any_of(roster_, [&](ProcessId id) {
    const Process* const process = processes_.find(id);
    return process == nullptr || process->stage == Stage::left;
  });
}

void Generation::begin_meeting(Time now) {
  if (!meeting_since_) meeting_since_ = now;
}

bool Generation::is_meeting_overdue(Time now) const {
  return meeting_since_ && now >= *meeting_since_ + options_.elastic_timeout;
}

bool Generation::all_have_come() const {
  if (number_ > 0)
    return std::ranges::none_of(roster_, [&](ProcessId id) {
      const Process* const process = processes_.find(id);
      return process != nullptr && process->stage == Stage::member && !process->completed;
    });
  return std::ranges::all_of(processes_.all(), [](const auto& entry) {
    const Stage stage = entry.second.stage;
    return stage == Stage::waiting || stage == Stage::left || stage == Stage::lost;
  });
}

std::vector<Process*> Generation::late_in_meeting(Time now) {
  std::vector<Process*> late;
  if (!is_meeting_overdue(now)) return late;
  for (const ProcessId id : roster_)
    if (Process* const process = processes_.find(id);
        process && process->stage == Stage::member && !process->completed)
      late.push_back(process);
  return late;
}

// ---- the next generation ----

Generation::Candidates Generation::candidates(bool admits_newcomers) {
  Candidates all;
  for (const ProcessId id : roster_)
    if (Process* const process = processes_.find(id); process && process->stage == Stage::waiting)
      all.survivors.push_back(process);
  if (!admits_newcomers) return all;
  for (const ProcessId id : processes_.newcomers()) all.newcomers.push_back(processes_.find(id));
  std::ranges::stable_sort(all.newcomers, {}, &Process::order);
  return all;
}

bool Generation::can_do_without_removed() const {
  const auto stays = [&](ProcessId id) {
    const Process* const process = processes_.find(id);
    return process != nullptr && !hosts_.is_removed(*process) &&
           (process->is_living_member() || process->stage == Stage::waiting);
  };
  const auto members = std::ranges::count_if(roster_, stays);
  const auto newcomers = std::ranges::count_if(processes_.newcomers(), stays);
  return (number_ == 0 || members > 0) && members + newcomers >= options_.min_np;
}

/// Members that no longer need the others count as having left from now on, and take part in no
/// further generation.
bool Generation::release_completed() {
  bool any = false;
  for (const ProcessId id : roster_) {
    Process* const process = processes_.find(id);
    if (process == nullptr || process->stage != Stage::member) continue;
    processes_.move(*process, Stage::left);
    any = true;
  }
  return any;
}

/// Rank 0 is the process with the newest commit; among several, the one that joined the job first.
/// The other survivors keep their order, and newcomers come last.
std::vector<Process*> Generation::order_members(const Candidates& candidates) const {
  std::vector<Process*> members = candidates.survivors;
  const auto first = std::ranges::max_element(members, [](const Process* a, const Process* b) {
    return std::pair(a->commit, b->age) < std::pair(b->commit, a->age);
  });
  if (first != members.end()) std::rotate(members.begin(), first, first + 1);
  for (Process* const process : candidates.newcomers)
    if (members.size() < static_cast<std::size_t>(options_.max_np)) members.push_back(process);
  return members;
}

bool Generation::publish(const Candidates& candidates) {
  const std::vector<Process*> members = order_members(candidates);
  const bool any_released = release_completed();
  phase_ = Phase::running;
  begun_ = has_lost_ = announced_ = false;
  ++number_;
  meeting_since_.reset();
  roster_.clear();
  calls_.begin(members.size());
  Roster roster{.generation = number_};
  for (Process* const process : members) {
    processes_.move(*process, Stage::member);
    process->rank = static_cast<std::int32_t>(roster_.size());
    process->sequence = 0;
    if (process->age == 0) process->age = number_;
    roster_.push_back(process->id);
    roster.members.push_back({process->id, process->hello.host, process->hello.machine,
                              process->hello.pid, process->commit});
  }
  actions_.note(LogLevel::info, fmt::format("generation {} has {} ranks", number_, roster_.size()));
  send_to_members(roster, [](const Process&) { return true; });
  return any_released;
}

void Generation::adopt(GenerationNumber number, const std::vector<ProcessId>& members) {
  number_ = number;
  phase_ = Phase::running;
  begun_ = true;
  roster_ = members;
  calls_.begin(members.size());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    Process& process = *processes_.find(members[rank]);
    processes_.move(process, Stage::member);
    process.rank = static_cast<std::int32_t>(rank);
    if (process.age == 0) process.age = number;
  }
}

// ---- announced changes of membership ----

std::optional<Time> Generation::announcement_time(Time now) const {
  if (!is_running() || announced_ || meeting_since_) return std::nullopt;
  const auto is_leaving = [&](ProcessId id) {
    const Process* const process = processes_.find(id);
    return process != nullptr && hosts_.is_removed(*process);
  };
  if (hosts_.is_any_removed() && std::ranges::any_of(roster_, is_leaving) &&
      can_do_without_removed())
    return now;
  if (roster_.size() >= static_cast<std::size_t>(options_.max_np)) return std::nullopt;
  std::optional<Time> first;
  for (const ProcessId id : processes_.newcomers()) {
    const Time joined = processes_.find(id)->joined;
    if (!first || joined < *first) first = joined;
  }
  return first ? std::optional(*first + options_.growth_delay) : std::nullopt;
}

void Generation::announce() {
  announced_ = true;
  const Process* const root = processes_.find(roster_.front());
  if (root == nullptr || root->stage != Stage::member || !root->link) return;
  const std::size_t waiting = processes_.newcomers().size();
  const std::string reason =
      waiting > 0 ? fmt::format("{} new processes wait", waiting) : "a host is to be removed";
  actions_.note(LogLevel::info, fmt::format("membership is to change: {}", reason));
  actions_.send(*root->link, Announcement{number_, reason});
}

}  // namespace kolo::internal::rendezvous
