// SPDX-License-Identifier: Apache-2.0
// Decides when a job is over and with which exit status, from the fates of its processes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

class JobOutcome {
 public:
  /// The options outlive this object.
  explicit JobOutcome(const ServerOptions& options) : options_(options) {}

  void note_greeted() { greeted_ = true; }
  /// A member has reported this commit.
  void note_commit(std::uint64_t commit) { commit_ = std::max(commit_, commit); }
  /// A process has exited successfully before it was a member. Its program may use no sessions.
  void note_end_without_session(const Process& process) {
    ending_ = true;
    without_session_.add(process.name());
  }
  [[nodiscard]] const Names& without_session() const { return without_session_; }
  /// A member has finished its part.
  void note_departure() {
    ending_ = has_departed_ = true;
    last_loss_id_ = 0;
  }
  /// A member no longer needs the others.
  void note_completed() { ending_ = completed_ = true; }
  void note_loss(const Process& process, bool was_member) {
    if (!any_lost_) first_loss_ = {process.status, process.reason};
    if (!options_.elastic && first_loss_id_ == 0) first_loss_id_ = process.id;
    if (was_member) last_loss_id_ = process.id;
    any_lost_ = true;
  }
  /// The session of a process of a job that is not elastic has failed by its own doing. It is the
  /// first cause if it ends with an error. Another process may have ended because of it and be
  /// heard first, since messages of different connections overtake each other; but a process that
  /// knows of a loss reports no failure of its own.
  void note_own_failure(const Process& process) {
    if (cause_id_ == 0) cause_id_ = process.id;
  }
  /// The process goes on with another session, or has ended without an error.
  void forget_own_failure(const Process& process) {
    if (cause_id_ == process.id) cause_id_ = 0;
  }
  /// The first process whose session has failed by its own doing; 0 if there is none.
  [[nodiscard]] ProcessId cause() const { return cause_id_; }
  /// A process of a job that is not elastic has failed and exited. Unless it is a victim, it is the
  /// cause of the ends of victims that are heard before or after it.
  void note_failed(const Process& process) {
    if (!process.is_victim && !culprit_) culprit_ = failure_of(process);
  }
  /// The end of the job because of the first failed process that is no victim; none so far.
  [[nodiscard]] const std::optional<Finish>& culprit() const { return culprit_; }
  /// A process has exited after it had finished its part.
  void note_late_exit(int status) {
    if (late_status_ == 0) late_status_ = status;
  }
  void note_finished() { finished_ = true; }

  /// True if the job is over.
  [[nodiscard]] bool is_finished() const { return finished_; }
  /// True if a process has finished its part, so that the job admits no newcomers.
  [[nodiscard]] bool is_ending() const { return ending_; }
  /// True if some members of an elastic job have finished. The others may finish too, even if fewer
  /// than `min_np` are left.
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
  [[nodiscard]] std::optional<Finish> end_as(const Process& process) const {
    if (options_.elastic || process.id != first_loss_id_ || !process.exited) return std::nullopt;
    return failure_of(process);
  }
  /// The end of a job because of this process, which has exited.
  [[nodiscard]] static Finish failure_of(const Process& process) {
    return {.status = process.status == 0 ? 1 : process.status,
            .reason = process.reason,
            .last_lines = process.last_lines};
  }
  /// The end of the job if no process can continue. Nothing while the job may go on.
  [[nodiscard]] std::optional<Finish> conclude(const ProcessTable& processes,
                                               bool has_begun) const {
    bool living = false;     // some processes continue
    bool finishing = false;  // some have finished their part, but their programs have not exited
    bool coming = false;     // some may become members
    for (const auto& [id, process] : processes.all()) {
      living |= process.is_living_member();
      finishing |= process.stage == Stage::left && process.agent && !process.exited;
      coming |= process.stage == Stage::launched || process.stage == Stage::greeted ||
                process.stage == Stage::waiting;
    }
    if (living || finishing || awaits_first_loss()) return std::nullopt;
    if (has_begun) return conclude_begun(processes);
    // No process has ever connected. The program may not exist, so further processes would fail
    // too.
    if (options_.elastic && !coming && !greeted_ && first_loss_.status != 0) return first_loss_;
    if (!ending_ || coming) return std::nullopt;
    return any_lost_ ? Finish{1, "a process is lost"} : Finish{late_status_, ""};
  }
  /// The exit status of the last lost member; 1 if that is unknown or 0, since the job has failed.
  [[nodiscard]] int status_of_last_loss(const ProcessTable& processes) const {
    const Process* const lost = processes.find(last_loss_id_);
    return lost == nullptr || lost->status == 0 ? 1 : lost->status;
  }

 private:
  [[nodiscard]] std::optional<Finish> conclude_begun(const ProcessTable& processes) const {
    const Process* const lost = processes.find(last_loss_id_);
    // Wait until the agent reports the exit status of the lost process, which becomes that of the
    // job.
    if (lost != nullptr && lost->agent && !lost->exited) return std::nullopt;
    if (!has_departed_)
      return Finish{status_of_last_loss(processes), "no process with the job's state is left"};
    if (lost != nullptr) return Finish{status_of_last_loss(processes), lost->reason};
    return Finish{late_status_, late_status_ == 0 ? "" : describe_exit(late_status_)};
  }

  const ServerOptions& options_;
  std::uint64_t commit_ = 0;
  bool greeted_ = false;  // a process has connected
  bool ending_ = false;
  bool has_departed_ = false;  // a member has finished its part
  bool completed_ = false;     // a member no longer needs the others
  bool any_lost_ = false;
  bool finished_ = false;
  Names without_session_{};
  Finish first_loss_{};          // the first loss: the exit status, if known then, and the reason
  ProcessId first_loss_id_ = 0;  // the first lost process of a job that is not elastic
  ProcessId cause_id_ = 0;       // see `cause`
  std::optional<Finish> culprit_{};  // see `culprit`
  ProcessId last_loss_id_ = 0;  // the last lost member; 0 if another has finished its part since
  int late_status_ = 0;         // the first failure of a process after it had finished its part
};

}  // namespace kolo::internal::rendezvous
