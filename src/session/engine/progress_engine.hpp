// SPDX-License-Identifier: Apache-2.0
// One pass of the driver: moves messages, negotiates, executes batches and finishes operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "negotiation/protocol/negotiator.hpp"
#include "session/engine/heartbeat.hpp"
#include "session/engine/links.hpp"
#include "session/engine/operation_queue.hpp"
#include "session/engine/presence.hpp"
#include "session/engine/watch.hpp"

namespace kolo::internal::session {

/// Used by the driver only, one thread at a time. Nothing here blocks.
class ProgressEngine {
 public:
  ProgressEngine(const negotiation::NegotiatorOptions& options, OperationQueue& queue, Links& links,
                 backend::Backend& backend, diagnostics::Recorder& recording,
                 const Presence& presence);

  /// `path` as for kolo::write_flight_record.
  std::string write_flight_record(const std::string& path) {
    return recorder_.write(path, "the program asked for it", pending());
  }

  /// Does what can be done now. True if anything moved.
  bool progress();

  /// This rank leaves, after what it has submitted. Only the first call counts.
  void leave(bool clean, const std::string& reason);

  /// Ends the session for all ranks, unless it has failed already.
  void give_up(const Failure& why) noexcept;

  /// True while an answer or a batch is awaited: the next pass should come soon.
  [[nodiscard]] bool outstanding() const { return negotiator_.outstanding() || executing(); }
  /// True while batches run: they move only during passes.
  [[nodiscard]] bool executing() const { return !running_.empty(); }
  /// True while other ranks' progress with data, or with a plan, is awaited.
  [[nodiscard]] bool awaits_data() const { return executing() || negotiator_.awaits_board(); }
  /// A pass is due then, even if nothing has happened.
  [[nodiscard]] std::chrono::steady_clock::time_point deadline() const {
    return std::min(negotiator_.deadline(), next_checks_);
  }
  /// How many operations were submitted so far.
  [[nodiscard]] std::uint64_t submissions() const { return submissions_; }
  /// True once every other rank has been sent word that this one left, or cannot be.
  [[nodiscard]] bool departed() const {
    return failed() || (negotiator_.left() && transport_.flushed());
  }
  /// True once all ranks have left and none needs this one.
  [[nodiscard]] bool ended() const {
    return failed() || (negotiator_.ended() && transport_.flushed() && !executing());
  }
  /// True after an error that ends the session: all operations fail with it.
  [[nodiscard]] bool failed() const { return failure_.has_value(); }
  /// True once an operation has failed because ranks left, were lost or did not respond.
  [[nodiscard]] bool has_missed_ranks() const { return has_missed_ranks_ || failed(); }
  /// True if that was because a process ended or does not respond. An error that another rank
  /// reports says nothing about processes: a rank that is close enough to see one end knows.
  [[nodiscard]] bool lost_a_process() const { return lost_a_process_; }
  /// True if batches over MPI were abandoned: a later call of MPI may write memory that is gone.
  [[nodiscard]] bool left_requests() const { return left_requests_; }
  /// Describes what the ranks that have not left are doing, as seen from this host. Thread-safe.
  [[nodiscard]] std::string describe_others() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Pending {
    detail::Operation* operation;  // null where the ticket is free
    TimePoint since;
  };
  struct Running {
    std::unique_ptr<backend::Execution> execution;  // null while it is held back
    std::vector<detail::Operation*> operations;
    SetId set;
    std::uint64_t sequence;
    TimePoint moved_at;
    std::unique_ptr<backend::Batch> held_back{};
  };

  /// The operations that are submitted and not done.
  [[nodiscard]] diagnostics::Recorder::Pending pending() const;
  void record_start(const negotiation::Execute& execute, const Running& running);
  void record_end(const Running& running);
  void record_faults(const negotiation::Actions& actions);

  /// A failure that ends the session, as a rank of another host has sent it.
  struct ReportedFailure {
    Failure failure;
    int reported_by;
  };
  /// Handles the messages that have arrived from other ranks.
  bool receive();
  /// One message. The first failure goes to `reported`: the session ends when all that came is
  /// read.
  void receive(int peer, std::span<const std::byte> bytes,
               std::optional<ReportedFailure>& reported);
  void send_heartbeats();
  bool submit();
  negotiation::Ticket keep(detail::Operation* operation);
  bool negotiate();
  bool execute();
  [[nodiscard]] bool may_start(const Running& running) const;
  void begin(Running& running, backend::Batch batch);
  /// The result of the work. An error of a backend names the batch.
  template <typename Work>
  auto of_batch(const Running& running, const Work& work) const;
  void start(const negotiation::Execute& execute);
  [[nodiscard]] backend::Batch batch_of(const negotiation::Execute& execute) const;
  /// Lets the backend prepare the plan's next batch, which may still be withdrawn.
  void prepare(const negotiation::Execute& upcoming);
  void finish(detail::Operation* operation, std::exception_ptr error, std::int64_t answer = 0);
  detail::Operation* take_operation(negotiation::Ticket ticket);
  // The end before its time; session_failure.cpp. The operations are finished whatever else fails.
  /// `reported_by`: the rank of another host that reported the failure; -1: none.
  void fail_session(Failure failure, int reported_by = -1) noexcept;
  /// For an error of this rank's own: in a `catch`.
  void fail_session_with_current_exception() noexcept;
  void fail_operations() noexcept;
  void propagate_failure(const Failure& failure, int reported_by);
  /// Why the session is over, as this operation's error.
  [[nodiscard]] std::exception_ptr failure_of(const detail::Operation& operation) const noexcept;

  // Periodic checks; periodic_checks.cpp.
  void periodic_checks();
  void reset_timers_after_pause(std::chrono::nanoseconds pause);
  [[nodiscard]] bool check_peer_failures();
  [[nodiscard]] bool check_ended_processes();
  [[nodiscard]] bool check_interruption();
  void publish_status();
  [[nodiscard]] std::vector<PendingWait> pending_waits();
  // The operation that waits longest; the ranks it waits for are filled in later.
  [[nodiscard]] std::optional<PendingWait> oldest_waiting() const;
  [[nodiscard]] std::optional<PendingWait> oldest_waiting_on_host() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_parent() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_ancestor() const;
  [[nodiscard]] std::optional<PendingWait> unresponsive_ranks();
  [[nodiscard]] std::string describe(const Running& running) const;

  negotiation::Negotiator negotiator_;
  OperationQueue& queue_;
  Links& links_;
  backend::Backend& backend_;
  transport::Transport& transport_;
  diagnostics::Recorder& recorder_;
  std::uint64_t session_;
  std::vector<detail::Operation*> taken_;  // from the queue just now; null once submitted
  const Presence& presence_;
  int rank_;
  int ranks_;  // of the world
  int parent_;
  std::vector<int> edges_;  // the neighbors in the tree
  StatusBoard board_;
  std::vector<int> far_children_;  // of other hosts, or that share no memory
  HeartbeatMonitor heartbeat_;
  Watch watch_;
  std::vector<Pending> negotiating_;  // by ticket
  std::vector<negotiation::Ticket> free_tickets_;
  std::deque<Running> running_;  // by sequence
  struct {
    std::uint64_t mark = 0;
    std::unique_ptr<backend::Execution> execution;  // null: no batch is prepared
  } prepared_;
  std::uint64_t submissions_ = 0;
  std::uint64_t plans_ = 0;     // that were begun
  std::uint64_t finished_ = 0;  // operations
  TimePoint now_{};             // of this pass
  TimePoint submitted_at_{};
  TimePoint next_checks_{};
  TimePoint checked_at_{};
  std::optional<TimePoint> interrupted_at_{};
  std::uint64_t progress_ = 0;  // at the last checks
  int quiet_checks_ = 0;        // in a row without any
  TimePoint plan_awaited_since_{};
  TimePoint others_awaited_since_{};
  // Whose processes had ended at the last checks: what they had sent before has been read since.
  std::vector<int> lost_{};
  bool leaving_ = false;
  bool lost_a_process_ = false;
  bool has_missed_ranks_ = false;
  bool left_requests_ = false;
  std::optional<Failure> failure_;
};

}  // namespace kolo::internal::session
