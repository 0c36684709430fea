// SPDX-License-Identifier: Apache-2.0
// Which ranks are to blame when ranks wait for each other. Where 2 waits for 0, and 0 for 1, which
// is stopped, the end of the chain is to blame: 0 waits itself.
#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/server.hpp"

namespace kolo::internal::rendezvous {
namespace {

// Time for the reports of all waiting ranks: each learns of the stall, then says for whom it waits.
constexpr std::chrono::seconds patience_for_reports{2};

enum class Guilt : std::uint8_t {
  silent,   // it says nothing, and does not come to meet the others
  present,  // it comes, and waits for nobody
  waiting,  // it waits for others
  none,     // it is lost already
};

}  // namespace

void Server::on(Process& process, const FailureReport& report, Time now) {
  if (report.generation != number_ || !is_living_member(process) || process.completed) return;
  for (const std::int32_t rank : report.ranks) {
    if (static_cast<std::size_t>(rank) >= roster_.size()) continue;
    Process* const reported = find(roster_[static_cast<std::size_t>(rank)]);
    if (reported == nullptr || reported == &process || !is_living_member(*reported)) continue;
    if (!report.stalled) {
      if (reported->stage == Stage::member) lose(*reported, report.reason, Fault::own, now);
    } else if (!reported->completed) {
      Suspect& suspect = stall_.suspects[reported->id];
      suspect.reporters.insert(process.id);
      if (suspect.reason.empty()) suspect.reason = report.reason;
      if (!stall_.judged_at) stall_.judged_at = now + patience_for_reports;
    }
  }
}

/// Those that say nothing are to blame; else those that wait for nobody; and where all wait for
/// each other, the one that most wait for, of several the newest. If a member was lost anyway, the
/// others may have waited for it.
void Server::judge_stall(Time now) {
  if (!stall_.judged_at || (now < *stall_.judged_at && !all_have_come())) return;
  const Stall stall = std::exchange(stall_, {});
  const auto waits = [&](ProcessId id) {
    return std::ranges::any_of(
        stall.suspects, [&](const auto& entry) { return entry.second.reporters.contains(id); });
  };
  const auto guilt_of = [&](ProcessId id) {
    const Process* const process = find(id);
    if (process == nullptr || !is_living_member(*process) || process->completed) return Guilt::none;
    if (waits(id)) return Guilt::waiting;
    return process->stage == Stage::member ? Guilt::silent : Guilt::present;
  };
  Guilt worst = Guilt::none;
  for (const auto& [id, suspect] : stall.suspects) worst = std::min(worst, guilt_of(id));
  if (worst == Guilt::none || (worst != Guilt::silent && has_lost_)) return;
  std::vector<ProcessId> blamed;
  for (const auto& [id, suspect] : stall.suspects)
    if (guilt_of(id) == worst) blamed.push_back(id);
  if (worst == Guilt::waiting)
    blamed = {std::ranges::max(blamed, {}, [&](ProcessId id) {
      return std::pair(stall.suspects.at(id).reporters.size(), find(id)->rank);
    })};
  for (const ProcessId id : blamed) lose(*find(id), stall.suspects.at(id).reason, Fault::own, now);
}

}  // namespace kolo::internal::rendezvous
