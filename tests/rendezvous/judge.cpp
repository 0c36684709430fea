// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kolo::internal::rendezvous {

std::int32_t Judge::rank_in(const Roster& roster, ProcessId process) {
  const auto found = std::ranges::find(roster.members, process, &Member::process);
  return found == roster.members.end() ? -1
                                       : static_cast<std::int32_t>(found - roster.members.begin());
}

void Judge::on_join(ProcessId process, std::uint64_t commit) { state_of(process).joined = commit; }

void Judge::on_contribution(ProcessId process, const Contribution& part) {
  if (rosters_.empty() || part.generation != rosters_.back().generation) return;
  calls_[part.sequence][rank_in(rosters_.back(), process)] = part.payload;
}

void Judge::on_welcome(ProcessId process) {
  require(!state_of(process).lost, "fenced",
          fmt::format("process {} is lost, and admitted again", process));
}

void Judge::on_roster(ProcessId process, const Roster& roster) {
  if (rosters_.empty() || roster.generation != rosters_.back().generation)
    check_new(roster);
  else
    require(roster == rosters_.back(), "one roster",
            fmt::format("two of generation {}", roster.generation));
  require(rank_in(roster, process) >= 0, "old",
          fmt::format("process {} gets generation {}, whose member it is not", process,
                      roster.generation));
  require(told_.insert(process).second, "one roster",
          fmt::format("process {} gets generation {} twice", process, roster.generation));
}

void Judge::check_new(const Roster& roster) {
  require(roster.generation == rosters_.size() + 1, "one roster",
          fmt::format("generation {} follows {}", roster.generation, rosters_.size()));
  require(rosters_.empty() || told_.size() == rosters_.back().members.size(), "one roster",
          "a member was not told");
  const auto size = static_cast<int>(roster.members.size());
  const bool some_are_done =
      std::ranges::any_of(states_, [](const auto& entry) { return entry.second.gone; });
  require((size >= min_np_ || some_are_done) && size <= max_np_, "size",
          fmt::format("{} ranks", size));
  std::set<ProcessId> members;
  std::uint64_t newest = 0;
  for (const Member& member : roster.members) {
    State& state = state_of(member.process);
    require(members.insert(member.process).second, "one roster", "a process has two ranks");
    require(!state.lost && !state.gone, "fenced",
            fmt::format("process {} is lost or done, and in generation {}", member.process,
                        roster.generation));
    require(state.joined == member.commit, "joined",
            fmt::format("process {} did not join with commit {}", member.process, member.commit));
    newest = std::max(newest, member.commit);
    state.joined.reset();
  }
  require(
      roster.members.front().commit == newest, "newest",
      fmt::format("rank 0 has commit {}, and another {}", roster.members.front().commit, newest));
  check_order(roster);
  check_nobody_is_forgotten(roster);
  for (const Member& member : roster.members)
    state_of(member.process).member_of = roster.generation;
  rosters_.push_back(roster);
  told_.clear();
  calls_.clear();
  broken_ = false;
}

/// Survivors come first, and but for rank 0 as they were.
void Judge::check_order(const Roster& roster) const {
  if (rosters_.empty()) return;
  std::int32_t before = -1;
  bool has_newcomers = false;
  for (std::size_t rank = 0; rank < roster.members.size(); ++rank) {
    const std::int32_t old = rank_in(rosters_.back(), roster.members[rank].process);
    require(old < 0 || !has_newcomers, "order", "a newcomer before a survivor");
    require(old >= 0 || rank > 0, "order", "nobody has the state");
    has_newcomers |= old < 0;
    require(old < 0 || rank < 2 || old > before, "order", "survivors have changed places");
    if (old >= 0 && rank > 0) before = old;
  }
}

void Judge::check_nobody_is_forgotten(const Roster& roster) const {
  if (rosters_.empty()) return;
  for (const Member& member : rosters_.back().members) {
    const State& state = states_.at(member.process);
    require(
        state.lost || state.gone || rank_in(roster, member.process) >= 0, "forgotten",
        fmt::format("process {} is no member of generation {}", member.process, roster.generation));
  }
}

void Judge::on_result(ProcessId process, const Result& result) {
  require(!rosters_.empty() && result.generation == rosters_.back().generation &&
              state_of(process).member_of == result.generation && !state_of(process).lost,
          "old",
          fmt::format("process {} gets a result of generation {}", process, result.generation));
  require(!broken_, "old",
          fmt::format("a result of generation {}, which is over", result.generation));
  const auto found = calls_.find(result.sequence);
  require(found != calls_.end(), "answers", "a result without a call");
  const Call& call = found->second;
  const std::size_t size = rosters_.back().members.size();
  require(call.size() == size, "answers", "not all have made the call");
  require(result.payloads.size() == size, "answers", "wrong length");
  std::int32_t rank = 0;
  for (const Payload& payload : result.payloads)
    require(call.at(rank++) == payload.bytes, "answers", "wrong bytes");
  ++results_;
}

void Judge::on_interruption(ProcessId process, const Interruption& interruption) {
  require(!rosters_.empty() && interruption.generation == rosters_.back().generation &&
              state_of(process).member_of == interruption.generation,
          "old",
          fmt::format("process {} is told that generation {} is over", process,
                      interruption.generation));
  broken_ = true;
}

void Judge::on_announcement(ProcessId process, const Announcement& announcement) {
  require(!rosters_.empty() && announcement.generation == rosters_.back().generation && !broken_ &&
              rank_in(rosters_.back(), process) == 0,
          "old", fmt::format("a change of generation {} is announced", announcement.generation));
}

void Judge::on_lost(ProcessId process, const std::string& reason) {
  State& state = state_of(process);
  require(state.at_fault, "faultless", fmt::format("process {} is given up: {}", process, reason));
  lost_ += state.lost ? 0 : 1;
  state.lost = true;
}

void Judge::on_finish(int status) {
  require(!status_, "ends", "twice");
  status_ = status;
}

void Judge::conclude(bool faults, int done, int alive) const {
  require(status_.has_value(), "ends", "the job does not end");
  require(alive == 0, "ends", fmt::format("{} processes remain", alive));
  require(*status_ == 0 || faults, "ends", fmt::format("status {} without a fault", *status_));
  require(*status_ != 0 || done > 0 || rosters_.empty(), "ends", "status 0, and nobody is done");
}

}  // namespace kolo::internal::rendezvous
