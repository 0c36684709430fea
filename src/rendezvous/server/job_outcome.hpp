// SPDX-License-Identifier: Apache-2.0
// Decides when a job is over and with which exit status, from the fates of its processes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// The exit status of a process that a signal has ended is this base plus the signal's number, as
/// in shells.
inline constexpr int signal_base = 128;
/// Describes an exit status in words.
[[nodiscard]] std::string describe_exit(int status);

class JobOutcome {
 public:
  /// The options outlive this object.
  explicit JobOutcome(const ServerOptions& options) : options_(options) {}

  void note_greeted() { greeted_ = true; }
  /// A member has reported this commit.
  void note_commit(std::uint64_t commit) { commit_ = std::max(commit_, commit); }
  /// A process has exited successfully before it was a member. Its program may use no sessions.
  void note_end_without_session() { ending_ = true; }
  /// A member has finished its part.
  void note_departure();
  /// A member no longer needs the others.
  void note_completed() { ending_ = completed_ = true; }
  void note_loss(const Process& process, bool was_member);
  /// A process has exited after it had finished its part.
  void note_late_exit(int status);
  void note_finished() { finished_ = true; }

  /// True if the job is over.
  [[nodiscard]] bool is_finished() const { return finished_; }
  /// True if a process has finished its part, so that the job admits no newcomers.
  [[nodiscard]] bool is_ending() const { return ending_; }
  /// True if some members have finished. The others may finish too, even if fewer than `min_np` are
  /// left.
  [[nodiscard]] bool only_completes() const {
    return options_.elastic && (has_departed_ || completed_);
  }
  /// True if the job ends with the exit status of its first lost process, which may not be known
  /// yet.
  [[nodiscard]] bool awaits_first_loss() const {
    return !options_.elastic && options_.has_agents && first_loss_id_ != 0;
  }
  /// The newest commit that a member has reported.
  [[nodiscard]] std::uint64_t newest_commit() const { return commit_; }
  /// The end of a job that is not elastic, which takes the exit status of its first lost process.
  /// None if `process` is not that process or has not exited.
  [[nodiscard]] std::optional<Finish> end_as(const Process& process) const;
  /// The end of the job if no process continues; none if some process may.
  [[nodiscard]] std::optional<Finish> conclude(const ProcessTable& processes, bool has_begun) const;
  /// The exit status of the last lost member; 1 if that is unknown or 0, since the job has failed.
  [[nodiscard]] int status_of_last_loss(const ProcessTable& processes) const;

 private:
  [[nodiscard]] std::optional<Finish> conclude_begun(const ProcessTable& processes) const;

  const ServerOptions& options_;
  std::uint64_t commit_ = 0;
  bool greeted_ = false;  // a process has connected
  bool ending_ = false;
  bool has_departed_ = false;  // a member has finished its part
  bool completed_ = false;     // a member no longer needs the others
  bool any_lost_ = false;
  bool finished_ = false;
  Finish first_loss_{};          // the first loss: the exit status, if known then, and the reason
  ProcessId first_loss_id_ = 0;  // the first lost process of a job that is not elastic
  ProcessId last_loss_id_ = 0;   // the last lost member; 0 if another has finished its part since
  int late_status_ = 0;          // the first failure of a process after it had finished its part
};

}  // namespace kolo::internal::rendezvous
