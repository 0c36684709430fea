// SPDX-License-Identifier: Apache-2.0
// How a job ends, from what has become of its processes so far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// The exit status of a process that a signal has ended, as a shell reports it, less the number of
/// the signal.
inline constexpr int signal_base = 128;
/// A shell's exit status in words.
[[nodiscard]] std::string describe_exit(int status);

class JobOutcome {
 public:
  /// The options outlive this object.
  explicit JobOutcome(const ServerOptions& options) : options_(options) {}

  void note_greeted() { greeted_ = true; }
  /// A member has had this commit.
  void note_commit(std::uint64_t commit) { commit_ = std::max(commit_, commit); }
  /// A process has ended well before it was a member: perhaps a program without sessions.
  void note_end_without_session() { ending_ = true; }
  /// A member has done its part.
  void note_departure();
  /// A member no longer needs the others.
  void note_completed() { ending_ = completed_ = true; }
  void note_loss(const Process& process, bool was_member);
  /// A process that had done its part has exited.
  void note_late_exit(int status);
  void note_finished() { finished_ = true; }

  /// The job is over.
  [[nodiscard]] bool is_finished() const { return finished_; }
  /// A process has done its part, so the job admits no newcomers.
  [[nodiscard]] bool is_ending() const { return ending_; }
  /// Some members are done, and the others may finish too, however few they are.
  [[nodiscard]] bool only_completes() const {
    return options_.elastic && (has_departed_ || completed_);
  }
  /// The job ends as its first lost process, which has not exited yet.
  [[nodiscard]] bool awaits_first_loss() const {
    return !options_.elastic && options_.has_agents && first_loss_id_ != 0;
  }
  /// The newest commit that a member has had.
  [[nodiscard]] std::uint64_t newest_commit() const { return commit_; }
  /// A job that is not elastic ends as its first lost process. None if this is not that process, or
  /// it has not exited.
  [[nodiscard]] std::optional<Finish> end_as(const Process& process) const;
  /// How the job ends if no process goes on; none if some process may.
  [[nodiscard]] std::optional<Finish> conclude(const ProcessTable& processes, bool has_begun) const;
  /// Never 0: the job has failed, even if it is not known how that process has ended.
  [[nodiscard]] int status_of_last_loss(const ProcessTable& processes) const;

 private:
  [[nodiscard]] std::optional<Finish> conclude_begun(const ProcessTable& processes) const;

  const ServerOptions& options_;
  std::uint64_t commit_ = 0;
  bool greeted_ = false;  // any process has connected
  bool ending_ = false;
  bool has_departed_ = false;  // a member has done its part
  bool completed_ = false;     // a member no longer needs the others
  bool any_lost_ = false;
  bool finished_ = false;
  Finish first_loss_{};          // the first lost process: its status, if it has exited, and why
  ProcessId first_loss_id_ = 0;  // that process, in a job that is not elastic
  ProcessId last_loss_id_ = 0;   // a member, if no other has done its part since then
  int late_status_ = 0;          // of a process that failed after it had done its part
};

}  // namespace kolo::internal::rendezvous
