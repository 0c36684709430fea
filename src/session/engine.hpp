// A running session: everything it owns, and who drives it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "diagnostics/recorder.hpp"
#include "session/coordinator.hpp"
#include "session/devices.hpp"
#include "session/links.hpp"
#include "session/operation_queue.hpp"
#include "session/presence.hpp"
#include "session/process_sets.hpp"
#include "session/settings.hpp"
#include "session/topology.hpp"

namespace kolo::session {

/// One driver at a time turns the coordinator: a thread that waits for an operation, or, when none
/// does, the session's own thread. Thread-safe but for `shut_down`.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// `session` is a number that all ranks share and no earlier session had. Starts the session's
  /// own thread. Must be shut down before it is destroyed.
  Engine(const Settings& settings, const Topology& topology, std::uint64_t session,
         std::unique_ptr<Links> links, GpuLibraries gpu_libraries = {});

  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] ProcessSets& process_sets() { return process_sets_; }
  [[nodiscard]] Devices& devices() { return devices_; }

  [[nodiscard]] std::shared_ptr<node::SharedHeap> heap() const { return links_->heap(); }
  [[nodiscard]] std::vector<node::FileDescriptor> other_processes() const {
    return links_->other_processes();
  }
  [[nodiscard]] std::string data_path() const { return links_->data_path(); }

  /// `waits`: the caller is about to wait and will drive; else the session's own thread is woken.
  /// Memory for the next submission is left in it.
  OperationPtr submit(Submission&& submission, bool waits);

  /// Waits until `operation` is done, at most until `deadline`. False if it is not.
  bool wait(const detail::Operation& operation, std::chrono::steady_clock::time_point deadline);

  [[nodiscard]] Statistics statistics() const { return recording_.statistics(); }
  /// Throws InvalidArgument if there is one.
  void start_timeline(std::shared_ptr<diagnostics::Timeline> timeline);
  /// Throws BackendError if something could not be written.
  void stop_timeline();
  std::string write_flight_record(const std::string& path);

  /// This rank leaves the session: every other rank learns of it. Does not wait.
  void leave(bool clean, const std::string& reason);

  /// Leaves, and waits until the others were told, at most for `timeout`.
  void leave_now(const std::string& reason, std::chrono::nanoseconds timeout);

  /// Leaves, waits until all ranks have left, and stops.
  void shut_down(bool clean, const std::string& reason);

  /// True after an error from which there was no way back. Only after `shut_down`.
  [[nodiscard]] bool failed() const { return coordinator_.failed(); }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Condition = std::function<bool()>;

  bool wait_until(const Condition& met, TimePoint deadline);
  /// Has the driver do it, at the end of a turn, and waits until it is done. Throws what it
  /// throws.
  void in_turn(const std::function<void()>& work);
  // By who holds the driver's token.
  bool turn();
  void drive_until(const Condition& met, TimePoint deadline);
  void hand_over();
  void drive_in_background();
  // By the session's own thread.
  void run();
  void nap();
  [[nodiscard]] std::chrono::nanoseconds next_pause(bool moved);
  [[nodiscard]] std::chrono::nanoseconds until_due(TimePoint now) const;

  [[nodiscard]] const node::Doorbell& bell() const { return links_->bell(); }
  [[nodiscard]] bool must_poll() const { return links_->must_poll() || devices_.must_poll(); }
  /// Whatever may come from now on rings.
  void listen(node::Listener who) const;

  Settings settings_;
  Topology topology_;
  std::unique_ptr<Links> links_;
  Devices devices_;
  ProcessSets process_sets_;
  OperationQueue queue_;
  diagnostics::Recorder recording_;
  Presence presence_;
  Coordinator coordinator_;

  // Written by the driver after each turn.
  std::atomic<bool> departed_{false};
  std::atomic<bool> ended_{false};

  std::mutex mutex_;                 // of what follows
  std::condition_variable changed_;  // operations were finished, or the token became free
  bool driven_ = false;              // the driver's token
  std::atomic<int> waiters_{0};
  bool stopping_ = false;
  std::atomic<bool> leaving_{false};
  bool left_clean_ = true;
  std::string reason_of_leaving_;

  std::mutex asking_;                                        // held by who waits for `work_`
  std::atomic<const std::function<void()>*> work_{nullptr};  // null when it is done

  // Of the session's own thread. Where nobody rings it looks ever less often.
  std::chrono::nanoseconds pause_{};
  TimePoint moved_at_{};
  TimePoint submitted_at_{};
  std::uint64_t submissions_ = 0;
  std::atomic<bool> napping_{false};  // it looks soon: no need to wake it
  std::uint64_t unattended_ = 0;      // submissions when it last looked for bursts
  bool in_bursts_ = false;            // they came so at last
  std::thread thread_;
};

}  // namespace kolo::session
