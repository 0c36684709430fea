// SPDX-License-Identifier: Apache-2.0
// The checks that a rank makes ten times a second: it publishes its status, notices lost ranks, and
// explains operations that do not move.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/session_clock.hpp"
#include "base/settings.hpp"
#include "negotiation/protocol/negotiator.hpp"
#include "session/engine/heartbeat.hpp"
#include "session/engine/launched_batches.hpp"
#include "session/engine/links.hpp"
#include "session/engine/presence.hpp"
#include "session/engine/watch.hpp"
#include "session/engine/work_in_progress.hpp"

namespace kolo::internal::session {

/// The periodic checks of one rank. Only the driver may call them, except `describe_others`.
/// Nothing here blocks.
class HealthChecks {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// All arguments but `options` must outlive the object.
  HealthChecks(const Settings& settings, const negotiation::NegotiatorOptions& options,
               negotiation::Negotiator& negotiator, WorkInProgress& work, LaunchedBatches& launched,
               Links& links, const Presence& presence, const SessionClock& clock);

  /// The time of the next checks, even if nothing has happened.
  [[nodiscard]] TimePoint deadline() const { return next_; }
  /// True if checks are due, or another rank of this host has raised the alarm.
  [[nodiscard]] bool are_due() { return clock_.now() >= next_ || board_.take_alarm(); }

  /// The driver's work so far. Without progress between two checks the rank may be blocked.
  struct Progress {
    std::uint64_t submitted = 0;  // the number of operations submitted
    std::uint64_t finished = 0;   // the number of operations finished
    TimePoint submitted_at{};     // the time of the last submission, by the steady clock
    bool leaving = false;
  };
  /// Makes all checks. Returns the failure that ends the session, if there is one.
  [[nodiscard]] std::optional<Failure> check(const Progress& progress);

  void receive(const negotiation::Heartbeat& heartbeat) {
    heartbeat_.receive(heartbeat, clock_.now());
  }

  /// The ranks for which this one has waited for at least half of `stall_shutdown`.
  [[nodiscard]] RankSet awaited_for_long();
  /// True if the last checks have found that processes of this host have ended.
  [[nodiscard]] bool found_ended_process() const { return found_ended_process_; }

  /// The longest wait of this rank, such as `allreduce "x" for 5 s`; empty if none is long.
  [[nodiscard]] std::string wait_in_words();

  [[nodiscard]] StatusBoard& board() { return board_; }
  /// Describes what the ranks that have not left are doing, as seen from this host. Thread-safe.
  [[nodiscard]] std::string describe_others(bool times) const;

 private:
  [[nodiscard]] std::optional<Failure> find_lost_kernels();
  [[nodiscard]] std::optional<Failure> find_failed_peer() const;
  [[nodiscard]] std::optional<Failure> find_ended_process();
  [[nodiscard]] std::optional<Failure> find_interruption();
  void send_heartbeats();
  void publish_status();
  [[nodiscard]] std::vector<PendingWait> pending_waits();
  // The next two return waits without awaited ranks, which the callers fill in.
  [[nodiscard]] std::optional<PendingWait> oldest_waiting() const;
  [[nodiscard]] std::optional<PendingWait> oldest_waiting_on_host() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_parent() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_ancestor() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_ranks();

  negotiation::Negotiator& negotiator_;
  WorkInProgress& work_;
  LaunchedBatches& launched_;
  Links& links_;
  const Presence& presence_;
  const SessionClock& clock_;
  std::uint64_t session_;
  int rank_;
  int parent_;
  StatusBoard board_;
  std::vector<int> far_children_{};  // children on other hosts, or that share no memory
  HeartbeatMonitor heartbeat_;
  Watch watch_;
  Progress progress_{};
  TimePoint next_{};
  std::optional<TimePoint> interrupted_at_{};
  std::optional<TimePoint> gone_since_{};  // when a process was gone after the end
  int quiet_checks_ = 0;                   // checks in a row without progress
  TimePoint plan_awaited_since_{};
  TimePoint others_awaited_since_{};
  // The ranks whose processes had ended at the last checks. Their last messages have been read
  // since then.
  std::vector<int> lost_{};
  bool found_ended_process_ = false;
};

}  // namespace kolo::internal::session
