// SPDX-License-Identifier: Apache-2.0
// Detects ancestors in the tree that do not respond, where shared memory cannot show it.
#pragma once

#include <chrono>
#include <optional>

#include "base/settings.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::session {

/// Times the heartbeats to the children and checks those from the parent. Heartbeats travel down
/// the tree, from host to host, because the ranks below a stopped rank are the ones that wait for
/// its messages.
class HeartbeatMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `parent`: -1 for the root, and if shared memory shows the parent's status. The interval is
  /// short enough for the children to notice a silence within the limits of `settings`.
  HeartbeatMonitor(int parent, const Settings& settings, TimePoint now);

  /// The heartbeat to send to the children, if one is due.
  [[nodiscard]] std::optional<negotiation::Heartbeat> next(TimePoint now);

  /// Records a heartbeat from the parent.
  void receive(const negotiation::Heartbeat& heartbeat, TimePoint now);

  /// Restarts the parent's time after a pause in which this rank could not receive.
  void reset_after_pause(TimePoint now) { received_at_ = now; }

  struct Silence {
    int rank;
    TimePoint since;
  };
  /// The parent, if it has missed three heartbeats; otherwise the ancestor that the parent reports
  /// as unresponsive.
  [[nodiscard]] std::optional<Silence> silence(TimePoint now) const;

 private:
  int parent_;
  std::chrono::nanoseconds interval_;
  TimePoint next_;
  negotiation::Heartbeat received_{};
  TimePoint received_at_;
  TimePoint reported_at_;  // the time of the last change of `received_.unresponsive_ancestor`
};

}  // namespace kolo::internal::session
