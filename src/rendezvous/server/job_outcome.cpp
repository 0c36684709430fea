// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_outcome.hpp"

#include <fmt/format.h>

namespace kolo::internal::rendezvous {
namespace {

constexpr int max_signal = 64;

}  // namespace

std::string describe_exit(int status) {
  if (status > signal_base && status <= signal_base + max_signal)
    return fmt::format("signal {} has ended it", status - signal_base);
  if (status == 0) return "it has ended without leaving the session";
  return fmt::format("it has ended with status {}", status);
}

void JobOutcome::note_departure() {
  ending_ = has_departed_ = true;
  last_loss_id_ = 0;
}

void JobOutcome::note_loss(const Process& process, bool was_member) {
  if (!any_lost_) first_loss_ = {process.status, process.reason};
  if (!options_.elastic && first_loss_id_ == 0) first_loss_id_ = process.id;
  if (was_member) last_loss_id_ = process.id;
  any_lost_ = true;
}

void JobOutcome::note_late_exit(int status) {
  if (late_status_ == 0) late_status_ = status;
}

std::optional<Finish> JobOutcome::end_as(const Process& process) const {
  if (options_.elastic || process.id != first_loss_id_ || !process.exited) return std::nullopt;
  return Finish{process.status == 0 ? 1 : process.status, process.reason};
}

std::optional<Finish> JobOutcome::conclude(const ProcessTable& processes, bool has_begun) const {
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
  // No process has ever connected. The program may not exist, so further processes would fail too.
  if (options_.elastic && !coming && !greeted_ && first_loss_.status != 0) return first_loss_;
  if (!ending_ || coming) return std::nullopt;
  return any_lost_ ? Finish{1, "a process is lost"} : Finish{late_status_, ""};
}

std::optional<Finish> JobOutcome::conclude_begun(const ProcessTable& processes) const {
  const Process* const lost = processes.find(last_loss_id_);
  // Wait until the agent reports the exit status of the lost process, which becomes that of the
  // job.
  if (lost != nullptr && lost->agent && !lost->exited) return std::nullopt;
  if (!has_departed_)
    return Finish{status_of_last_loss(processes), "no process with the job's state is left"};
  if (lost != nullptr) return Finish{status_of_last_loss(processes), lost->reason};
  return Finish{late_status_, late_status_ == 0 ? "" : describe_exit(late_status_)};
}

int JobOutcome::status_of_last_loss(const ProcessTable& processes) const {
  const Process* const lost = processes.find(last_loss_id_);
  return lost == nullptr || lost->status == 0 ? 1 : lost->status;
}

}  // namespace kolo::internal::rendezvous
