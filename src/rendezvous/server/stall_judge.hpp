// SPDX-License-Identifier: Apache-2.0
// Decides which ranks are to blame when ranks wait for each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// Collects the reports of one generation about members that keep others waiting. If rank 2 waits
/// for rank 0, and rank 0 for rank 1, which is stopped, the end of the chain is to blame: rank 1.
class StallJudge {
 public:
  struct Verdict {
    ProcessId process;
    std::string reason;
  };

  /// `reporter` waits for `suspect`.
  void report(ProcessId reporter, ProcessId suspect, const std::string& reason, Time now) {
    Suspect& entry = suspects_[suspect];
    entry.reporters.insert(reporter);
    if (entry.reason.empty()) entry.reason = reason;
    if (!judged_at_) judged_at_ = now + patience_for_reports;
  }
  /// The time by which all reports should have arrived; none without reports.
  [[nodiscard]] std::optional<Time> judged_at() const { return judged_at_; }
  /// Returns the processes to blame, and forgets all reports. `has_lost`: the generation has lost a
  /// member. Blames all suspects with the worst guilt. If all suspects wait for each other, only
  /// one of them is blamed: the suspect for which most ranks wait, and among several the one with
  /// the highest rank. If the generation has lost a member, ranks may have waited for that member,
  /// so only silent suspects are blamed.
  [[nodiscard]] std::vector<Verdict> judge(const ProcessTable& processes, bool has_lost) {
    Guilt worst = Guilt::none;
    for (const auto& [id, suspect] : suspects_)
      worst = std::min(worst, guilt_of(processes.find(id)));
    std::vector<ProcessId> blamed;
    if (worst == Guilt::silent || (worst != Guilt::none && !has_lost))
      for (const auto& [id, suspect] : suspects_)
        if (guilt_of(processes.find(id)) == worst) blamed.push_back(id);
    if (worst == Guilt::waiting && !blamed.empty())
      blamed = {std::ranges::max(blamed, {}, [&](ProcessId id) {
        return std::pair(suspects_.at(id).reporters.size(), processes.find(id)->rank);
      })};
    std::vector<Verdict> verdicts;
    verdicts.reserve(blamed.size());
    for (const ProcessId id : blamed) verdicts.push_back({id, suspects_.at(id).reason});
    clear();
    return verdicts;
  }
  void clear() { *this = {}; }

 private:
  // After the first report, the other waiting ranks need time to learn of the stall and to report
  // the ranks for which they wait.
  static constexpr std::chrono::seconds patience_for_reports{2};

  /// Ordered from the most to the least guilty.
  enum class Guilt : std::uint8_t {
    silent,   // sends no report and does not join the next generation
    present,  // joins the next generation, and waits for no process
    waiting,  // waits for other processes
    none,     // already lost, or no longer needed
  };
  struct Suspect {
    std::set<ProcessId> reporters{};
    std::string reason{};
  };

  [[nodiscard]] Guilt guilt_of(const Process* process) const {
    if (process == nullptr || !process->is_living_member() || process->completed)
      return Guilt::none;
    const bool waits = std::ranges::any_of(
        suspects_, [&](const auto& entry) { return entry.second.reporters.contains(process->id); });
    if (waits) return Guilt::waiting;
    return process->stage == Stage::member ? Guilt::silent : Guilt::present;
  }

  std::map<ProcessId, Suspect> suspects_{};
  std::optional<Time> judged_at_{};
};

}  // namespace kolo::internal::rendezvous
