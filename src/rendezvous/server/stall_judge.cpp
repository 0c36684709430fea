// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/stall_judge.hpp"

#include <algorithm>

namespace kolo::internal::rendezvous {
namespace {

// After the first report, the other waiting ranks need time to learn of the stall and to report the
// ranks for which they wait.
constexpr std::chrono::seconds patience_for_reports{2};

}  // namespace

void StallJudge::report(ProcessId reporter, ProcessId suspect, const std::string& reason,
                        Time now) {
  Suspect& entry = suspects_[suspect];
  entry.reporters.insert(reporter);
  if (entry.reason.empty()) entry.reason = reason;
  if (!judged_at_) judged_at_ = now + patience_for_reports;
}

StallJudge::Guilt StallJudge::guilt_of(const Process* process) const {
  if (process == nullptr || !process->is_living_member() || process->completed) return Guilt::none;
  const bool waits = std::ranges::any_of(
      suspects_, [&](const auto& entry) { return entry.second.reporters.contains(process->id); });
  if (waits) return Guilt::waiting;
  return process->stage == Stage::member ? Guilt::silent : Guilt::present;
}

/// Blames all suspects with the worst guilt. If all suspects wait for each other, only one of them
/// is blamed: the suspect for which most ranks wait, and among several the one with the highest
/// rank. If the generation has lost a member, ranks may have waited for that member, so only silent
/// suspects are blamed.
std::vector<StallJudge::Verdict> StallJudge::judge(const ProcessTable& processes, bool has_lost) {
  Guilt worst = Guilt::none;
  for (const auto& [id, suspect] : suspects_) worst = std::min(worst, guilt_of(processes.find(id)));
  std::vector<ProcessId> blamed;
  if (worst == Guilt::silent || (worst != Guilt::none && !has_lost))
    for (const auto& [id, suspect] : suspects_)
      if (guilt_of(processes.find(id)) == worst) blamed.push_back(id);
  if (worst == Guilt::waiting && !blamed.empty())
    blamed = {std::ranges::max(blamed, {}, [&](ProcessId id) {
      return std::pair(suspects_.at(id).reporters.size(), processes.find(id)->rank);
    })};
  std::vector<Verdict> verdicts;
  for (const ProcessId id : blamed) verdicts.push_back({id, suspects_.at(id).reason});
  clear();
  return verdicts;
}

}  // namespace kolo::internal::rendezvous
