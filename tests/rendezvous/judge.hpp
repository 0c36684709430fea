// SPDX-License-Identifier: Apache-2.0
// Watches all messages of a rendezvous server and all actions of processes, and throws when the
// server breaks a promise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/message.hpp"
#include "support/campaign.hpp"

namespace kolo::internal::rendezvous {

using campaign::Violation;

class Judge {
 public:
  Judge(int min_np, int max_np) : min_np_(min_np), max_np_(max_np) {}

  // Actions of processes, when the server learns of them.
  void on_join(ProcessId process, std::uint64_t commit);
  void on_contribution(ProcessId process, const Contribution& part);
  void on_leave(ProcessId process) { state_of(process).gone = true; }
  void on_closed(ProcessId process) { state_of(process).lost = true; }
  /// A fault has hit the process or its host, and may have made the process useless.
  void on_fault(ProcessId process) { state_of(process).at_fault = true; }

  // Actions of the server.
  void on_welcome(ProcessId process);
  void on_roster(ProcessId process, const Roster& roster);
  void on_result(ProcessId process, const Result& result);
  void on_interruption(ProcessId process, const Interruption& interruption);
  void on_announcement(ProcessId process, const Announcement& announcement);
  /// The server refuses the process, or has it killed.
  void on_lost(ProcessId process, const std::string& reason);
  void on_finish(int status);

  /// Checks the final state. `faults`: there were faults; `done`: the number of processes that have
  /// reached the last commit; `alive`: the number of processes that still run.
  void conclude(bool faults, int done, int alive) const;

  [[nodiscard]] std::uint64_t generations() const { return rosters_.size(); }
  [[nodiscard]] std::uint64_t results() const { return results_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] std::uint64_t largest() const {
    std::size_t largest = 0;
    for (const Roster& roster : rosters_) largest = std::max(largest, roster.members.size());
    return largest;
  }
  [[nodiscard]] std::optional<int> status() const { return status_; }

 private:
  struct State {
    std::optional<std::uint64_t> joined{};  // commit with which it waits
    GenerationNumber member_of = 0;
    bool lost = false;
    bool gone = false;
    bool at_fault = false;
  };
  using Call = std::map<std::int32_t, Bytes>;  // contribution of each rank

  void check_new(const Roster& roster);
  void check_order(const Roster& roster) const;
  void check_nobody_is_forgotten(const Roster& roster) const;
  [[nodiscard]] State& state_of(ProcessId process) { return states_[process]; }
  [[nodiscard]] static std::int32_t rank_in(const Roster& roster, ProcessId process);
  static void require(bool holds, const char* promise, const std::string& what) {
    if (!holds) throw Violation(promise, what);
  }

  int min_np_;
  int max_np_;
  std::map<ProcessId, State> states_{};
  std::vector<Roster> rosters_{};          // by generation, from 1 on
  std::set<ProcessId> told_{};             // processes with the newest roster
  std::map<std::uint64_t, Call> calls_{};  // calls of the newest generation
  bool broken_ = false;                    // the newest generation is broken
  std::uint64_t results_ = 0;
  std::uint64_t lost_ = 0;
  std::optional<int> status_{};
};

}  // namespace kolo::internal::rendezvous
