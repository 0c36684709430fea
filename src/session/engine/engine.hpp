// SPDX-License-Identifier: Apache-2.0
// A running session: everything it owns, and the choice of its driver.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "session/engine/devices.hpp"
#include "session/engine/process_sets.hpp"
#include "session/engine/progress_engine.hpp"
#include "session/topology.hpp"

namespace kolo::internal::session {

/// One thread at a time, the driver, makes progress: a thread that waits for an operation, or, when
/// no thread waits, the session's own thread. If the session's own thread always drove, a waiting
/// thread would sleep until it is woken, which costs two context switches for each operation.
/// `driven_` is the token that makes a thread the driver. Thread-safe, except `shut_down`.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Acquires all resources, the session's own thread included. Does nothing that another rank
  /// would notice, so a rank that fails here can still report the error before the session begins.
  /// `session` is a number that all ranks share and no earlier session had.
  Engine(Settings settings, std::uint64_t session, const Topology& topology,
         std::unique_ptr<Links> links, GpuLibraries gpu_libraries = {});
  /// An engine that was started must have been shut down.
  ~Engine();
  Engine& operator=(Engine&&) = delete;

  /// Lets the session's own thread drive. Call it once, before anything is submitted.
  void start();

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] ProcessSets& process_sets() { return process_sets_; }
  [[nodiscard]] Devices& devices() { return devices_; }
  [[nodiscard]] const LaunchedBatches& launched() const { return launched_; }

  [[nodiscard]] const Links& links() const { return *links_; }

  /// Queues the operation. `waits`: the caller is about to wait and will drive; otherwise the bell
  /// rings for the driver or the session's own thread. `submission` gets memory for reuse in
  /// exchange. Throws as `OperationQueue::push` and `wait` do; ShutDown if this rank has left.
  OperationPtr submit(Submission&& submission, bool waits);
  /// Like `submit`, for a submission that `OperationQueue::push_again` accepts. Returns null if it
  /// does not, if this rank leaves, or in a callback of the driver; call `submit` then.
  OperationPtr submit_again(const Repetition& repetition, bool waits);
  /// True if `submit_again` may accept it: worth a mark on the GPU.
  [[nodiscard]] bool expects(const Repetition& repetition) { return queue_.expects(repetition); }
  /// Lets the driver find the operations of this thread's burst.
  void announce_burst();

  /// Waits until `operation` is done, at most until `deadline`. Returns false if the operation is
  /// not done by then. Throws InvalidArgument in a callback that the driver has called.
  bool wait(const detail::Operation& operation, std::chrono::steady_clock::time_point deadline);
  /// Waits as `wait` does, until one of several operations is done: `any_done` says so.
  void wait_for_any(const std::function<bool()>& any_done);

  /// Waits until the GPU is done with the batch or the session has failed, at most until
  /// `deadline`. Returns false if neither has happened by then. Throws as `wait`.
  bool synchronize(const std::shared_ptr<backend::gpu::Completion>& batch,
                   std::chrono::steady_clock::time_point deadline);
  /// Waits for all batches that are launched. Throws the error of the first that has ever failed.
  void synchronize();

  /// True while this thread is in a pass of the driver. The caller is then a callback of the
  /// program, such as an allocator.
  [[nodiscard]] bool in_pass() const;
  /// True if this thread drives the session or waits for it. Async-signal-safe.
  [[nodiscard]] bool has_this_thread() const;

  /// For a thread that an exception unwinds, or that exits: other ranks may wait for operations
  /// that it will never submit. If `operation` is not done in time, this rank leaves the session.
  /// `cause` says in words why the future was destroyed.
  void wait_or_leave(const detail::Operation& operation, std::string_view cause);

  [[nodiscard]] Statistics statistics() const { return recorder_.statistics(); }
  /// Throws InvalidArgument if a timeline is being written already.
  void start_timeline(std::shared_ptr<diagnostics::Timeline> timeline);
  /// Throws BackendError if something could not be written.
  void stop_timeline();
  std::string write_flight_record(const std::string& path);

  /// Leaves the session, and tells every other rank. Does not wait.
  void leave(bool clean, const std::string& reason);

  /// Leaves, and waits until the other ranks have been told, at most for `timeout`.
  void leave_now(const std::string& reason, std::chrono::nanoseconds timeout);
  /// Leaves, and waits until all ranks have left, at most for `timeout`. If some have not by then,
  /// ends the session for all ranks and returns false.
  bool leave_or_give_up(const std::string& reason, std::chrono::nanoseconds timeout);

  /// Ends the session for all ranks. `shut_down` then does not wait for them.
  void give_up(Failure why);

  /// Leaves, waits until all ranks have left, and stops. Every operation is done afterwards. In a
  /// callback that the driver has called, throws InvalidArgument and does nothing.
  void shut_down(bool clean, const std::string& reason);

  /// True once an operation has failed because ranks left, were lost or did not respond.
  [[nodiscard]] bool has_missed_ranks() const {
    return has_missed_ranks_.load(std::memory_order_acquire);
  }

  /// True if this rank itself has seen that another rank's process ended or does not respond. Call
  /// it only after `shut_down`, as the next two functions.
  [[nodiscard]] bool lost_a_process() const { return progress_engine_.lost_a_process(); }
  /// True if the session ended before its ranks left it.
  [[nodiscard]] bool failed() const { return progress_engine_.failed(); }
  /// True if MPI may still write the memory of batches.
  [[nodiscard]] bool left_requests() const { return progress_engine_.left_requests(); }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Condition = std::function<bool()>;

  /// Throws InvalidArgument in a pass.
  void require_outside_pass(const std::string& name) const;
  [[nodiscard]] Notice notice_of(bool waits);
  void announce(Notice notice);
  void limit_work_in_flight();
  bool wait_until(const Condition& met, TimePoint deadline);
  /// Has the driver call `work` after its next pass, and waits until the call returns. Needed for
  /// state that only the driver may touch. Rethrows the exception of `work`.
  void run_on_driver(const std::function<void()>& work);
  // The next functions are called by the driver.
  /// Moves the session forward once. True if anything moved.
  bool progress();
  void drive_until(const Condition& met, TimePoint deadline);
  void hand_over();
  bool drive_in_background();
  void stop_thread();
  // Called by the session's own thread.
  void run();
  void coalescing_sleep();
  [[nodiscard]] std::chrono::nanoseconds next_pause(bool moved);
  /// The time until the next deadline: periodic checks, or one of the negotiator.
  [[nodiscard]] std::chrono::nanoseconds until_due(TimePoint now) const;

  [[nodiscard]] const node::Doorbell& bell() const { return links_->bell(); }
  [[nodiscard]] bool must_poll() const { return links_->must_poll() || devices_.must_poll(); }
  /// From now on, new work rings the bell. The caller must make one more pass before it sleeps,
  /// because earlier work did not ring.
  void listen(node::Listener listener) const;

  Settings settings_;
  Topology topology_;
  std::unique_ptr<Links> links_;
  Devices devices_;
  ProcessSets process_sets_;
  OperationQueue queue_;
  LaunchedBatches launched_{};
  diagnostics::Recorder recorder_;
  Presence presence_;
  ProgressEngine progress_engine_;

  // Copies of the progress engine's state for other threads, written by the driver.
  std::atomic<bool> departed_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> has_missed_ranks_{false};

  std::mutex mutex_;                 // guards the members below; atomics are also read without it
  std::condition_variable changed_;  // operations were finished, or the token became free
  bool driven_ = false;              // some thread has the driver's token
  std::atomic<bool> rests_{
      false};  // the session's own thread sleeps until a waiting thread hands over
  std::atomic<int> waiters_{0};  // threads in `wait_until`, the driver included
  bool started_ = false;         // the session's own thread may drive
  bool stopping_ = false;        // the session's own thread is to end
  std::atomic<bool> leaving_{false};
  // `leaving_` publishes these two members to the driver: they are written once, before it is set.
  bool left_clean_ = true;
  std::string reason_of_leaving_;
  std::atomic<bool> giving_up_{false};
  Failure reason_to_give_up_{};  // published by `giving_up_` in the same way

  std::mutex asking_;  // held by the thread in `run_on_driver`: one at a time
  std::atomic<const std::function<void()>*> work_{nullptr};  // null: none, or it has been done

  // The remaining members are used by the session's own thread; other threads read only the atomic.
  std::chrono::nanoseconds pause_{};  // grows while the thread polls and nothing moves
  TimePoint moved_at_{};
  TimePoint submitted_at_{};
  std::uint64_t submissions_ = 0;
  std::atomic<bool> coalescing_{false};  // the thread checks the queue soon: no ring is needed
  std::uint64_t unattended_ = 0;         // `OperationQueue::unattended` before the last sleep
  bool in_bursts_ = false;               // many submissions came during the last coalescing sleep
  std::thread thread_;
};

}  // namespace kolo::internal::session
