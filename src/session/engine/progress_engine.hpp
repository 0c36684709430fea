// SPDX-License-Identifier: Apache-2.0
// One pass of the driver: moves messages, negotiates, executes batches and finishes operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/session_clock.hpp"
#include "negotiation/protocol/negotiator.hpp"
#include "session/engine/health_checks.hpp"
#include "session/engine/launched_batches.hpp"
#include "session/engine/links.hpp"
#include "session/engine/operation_queue.hpp"
#include "session/engine/process_sets.hpp"
#include "session/engine/work_in_progress.hpp"
#include "session/pace/pace_monitor.hpp"

namespace kolo::internal::session {

/// Makes the driver's passes. Only the driver may call it, except `describe_others`. Nothing here
/// blocks.
class ProgressEngine {
 public:
  /// All arguments but `options` must outlive the object.
  ProgressEngine(const Settings& settings, const negotiation::NegotiatorOptions& options,
                 OperationQueue& queue, Links& links, backend::Backend& backend,
                 LaunchedBatches& launched, diagnostics::Recorder& recording,
                 const Presence& presence, ProcessSets& process_sets);

  /// Writes a record of the session; see kolo::write_flight_record.
  std::string write_flight_record(const std::string& path) {
    return recorder_.write(path, "the program asked for it", work_.pending());
  }

  /// Makes one pass: does all work that is possible without waiting. True if anything moved.
  bool progress();

  /// This rank leaves the session once its submitted operations are done. Only the first call has
  /// an effect.
  void leave(bool clean, const std::string& reason);

  /// Ends the session for all ranks with the failure `why`, unless it has failed already.
  void give_up(const Failure& why) noexcept;

  /// True while an answer or a batch is awaited: the next pass should come soon.
  [[nodiscard]] bool outstanding() const { return negotiator_.outstanding() || executing(); }
  /// True while batches run. They move only during passes.
  [[nodiscard]] bool executing() const { return !work_.running().empty(); }
  /// True while this rank waits for the progress of other ranks with data or with a plan.
  [[nodiscard]] bool awaits_data() const { return executing() || negotiator_.awaits_board(); }
  /// The time of the next pass, even if nothing has happened, by the steady clock.
  [[nodiscard]] std::chrono::steady_clock::time_point deadline() const {
    if (failed()) return std::chrono::steady_clock::time_point::max();  // nothing is checked
    return clock_.to_real(std::min(negotiator_.deadline(), checks_.deadline()));
  }
  /// The number of operations submitted so far.
  [[nodiscard]] std::uint64_t submissions() const { return submissions_; }
  /// True once all other ranks have been told that this one left, or cannot be told.
  [[nodiscard]] bool departed() const {
    return failed() || (negotiator_.left() && transport_.flushed());
  }
  /// True once all ranks have left and none needs this one.
  [[nodiscard]] bool ended() const {
    return failed() || (negotiator_.ended() && transport_.flushed() && !executing() &&
                        launched_.batches().empty());
  }
  /// True after an error that ends the session: all operations fail with it.
  [[nodiscard]] bool failed() const { return failure_.has_value(); }
  /// True once an operation has failed because ranks left, were lost or did not respond.
  [[nodiscard]] bool has_missed_ranks() const { return has_missed_ranks_ || failed(); }
  /// True if the session failed because a process ended or does not respond. An error that another
  /// rank reports does not count: it says nothing about processes.
  [[nodiscard]] bool lost_a_process() const { return lost_a_process_; }
  /// True if MPI requests of batches were abandoned. A later MPI call may complete them and write
  /// memory that the program has freed.
  [[nodiscard]] bool left_requests() const { return left_requests_; }
  /// As `HealthChecks::describe_others`. Thread-safe.
  [[nodiscard]] std::string describe_others(bool times) const {
    return checks_.describe_others(times);
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  bool pass();
  /// Sets the time of this pass, or of the rest of it.
  void read_clock();
  void record_start(const negotiation::Execute& execute, const RunningBatch& running);
  /// Returns the time of the end.
  TimePoint record_end(const RunningBatch& running);
  void record_faults(const negotiation::Actions& actions);

  /// A failure of the session that a neighbor in the tree has sent.
  struct ReportedFailure {
    Failure failure;
    int reported_by;
  };
  /// Handles the messages that have arrived from other ranks.
  bool receive();
  /// Handles one message. The first failure goes to `reported`: the session ends when all messages
  /// that have arrived are read.
  void receive(int peer, std::span<const std::byte> bytes,
               std::optional<ReportedFailure>& reported);
  bool submit();
  bool negotiate();
  bool execute();
  void finish_batch(RunningBatch&& done, bool launched, TimePoint at);
  bool settle_launched();
  [[nodiscard]] bool may_start(const RunningBatch& running) const;
  void begin(RunningBatch& running, backend::Batch batch);
  /// Returns the result of `work`. An exception becomes a BackendError that names the batch.
  template <typename Work>
  static auto of_batch(const RunningBatch& running, const Work& work);
  void start(const negotiation::Execute& execute);
  [[nodiscard]] backend::Batch batch_of(const negotiation::Execute& execute) const;
  /// Lets the backend prepare the plan's next batch, which may still be withdrawn.
  void prepare(const negotiation::Execute& upcoming);
  void finish(detail::Operation* operation, std::exception_ptr error, std::int64_t answer = 0);
  void check();

  // The next functions end a failed session (progress_engine_end.cpp). They finish the operations
  // even if other steps fail, because threads wait for the operations.
  /// `reported_by`: the neighbor that sent the failure; -1: none.
  void fail_session(Failure failure, int reported_by = -1) noexcept;
  /// Makes the exception that is being handled the failure of the session.
  void fail_session_with_current_exception() noexcept;
  void report_missed(const Failure& failure, const detail::Operation* operation);
  void fail_operations() noexcept;
  void propagate_failure(const Failure& failure, int reported_by);
  /// The session's failure as the error of `operation`, which its message names.
  [[nodiscard]] std::exception_ptr failure_of(const detail::Operation& operation) const noexcept;
  [[nodiscard]] std::exception_ptr failure_of(const LaunchedBatch& batch) const noexcept;
  [[nodiscard]] std::exception_ptr failure_of(const std::string& what,
                                              const std::string& tensor) const;

  negotiation::Negotiator negotiator_;
  OperationQueue& queue_;
  Links& links_;
  backend::Backend& backend_;
  LaunchedBatches& launched_;
  transport::Transport& transport_;
  negotiation::PlanBoard* board_;  // null: no plans
  diagnostics::Recorder& recorder_;
  ProcessSets& process_sets_;
  std::uint64_t session_;
  std::vector<detail::Operation*> taken_{};  // taken from the queue; null once submitted
  int rank_;
  int ranks_;                 // the size of the world
  std::vector<int> edges_{};  // the neighbors in the tree
  WorkInProgress work_{};
  SessionClock clock_;  // read at the beginning of a pass
  HealthChecks checks_;
  PaceMonitor pace_;
  const Presence& presence_;
  struct {
    std::uint64_t mark = 0;
    std::unique_ptr<backend::Execution> execution;  // null: no batch is prepared
  } prepared_;
  std::uint64_t submissions_ = 0;
  std::uint64_t plans_ = 0;     // plans that were begun
  std::uint64_t finished_ = 0;  // operations finished
  TimePoint submitted_at_{};    // by the steady clock
  bool leaving_ = false;
  bool lost_a_process_ = false;
  bool has_missed_ranks_ = false;  // an operation has failed because of others
  bool left_requests_ = false;
  std::optional<Failure> failure_;
};

}  // namespace kolo::internal::session
