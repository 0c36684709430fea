// SPDX-License-Identifier: Apache-2.0
// Decides which ranks are to blame when ranks wait for each other.
#pragma once

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
  void report(ProcessId reporter, ProcessId suspect, const std::string& reason, Time now);
  /// The time by which all reports should have arrived; none without reports.
  [[nodiscard]] std::optional<Time> judged_at() const { return judged_at_; }
  /// Returns the processes to blame, and forgets all reports. `has_lost`: the generation has lost a
  /// member.
  [[nodiscard]] std::vector<Verdict> judge(const ProcessTable& processes, bool has_lost);
  void clear() { *this = {}; }

 private:
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

  [[nodiscard]] Guilt guilt_of(const Process* process) const;

  std::map<ProcessId, Suspect> suspects_{};
  std::optional<Time> judged_at_{};
};

}  // namespace kolo::internal::rendezvous
