// SPDX-License-Identifier: Apache-2.0
// Detects ancestors in the tree that do not respond, where shared memory cannot show it.
#pragma once

#include <algorithm>
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
  HeartbeatMonitor(int parent, const Settings& settings, TimePoint now)
      : parent_(parent),
        interval_(interval_for(settings)),
        next_(now),
        received_at_(now),
        reported_at_(now) {}

  /// The heartbeat to send to the children, if one is due. `real` is the time of the steady clock:
  /// the children do not leave out the pauses of this process.
  [[nodiscard]] std::optional<negotiation::Heartbeat> next(TimePoint now, TimePoint real) {
    if (real < next_) return std::nullopt;
    next_ = real + interval_;
    const std::optional<Silence> above = silence(now);
    return negotiation::Heartbeat{above ? above->rank : -1, interval_};
  }

  /// Records a heartbeat from the parent.
  void receive(const negotiation::Heartbeat& heartbeat, TimePoint now) {
    if (heartbeat.unresponsive_ancestor != received_.unresponsive_ancestor) reported_at_ = now;
    received_ = heartbeat;
    received_at_ = now;
  }

  struct Silence {
    int rank;
    TimePoint since;
  };
  /// The parent, if it has missed three heartbeats; otherwise the ancestor that the parent reports
  /// as unresponsive.
  [[nodiscard]] std::optional<Silence> silence(TimePoint now) const {
    if (parent_ < 0) return std::nullopt;
    if (now - received_at_ > missed_until_silent * received_.interval)
      return Silence{parent_, received_at_};
    if (received_.unresponsive_ancestor < 0) return std::nullopt;
    return Silence{received_.unresponsive_ancestor, reported_at_};
  }

 private:
  /// Missed heartbeats until a rank counts as silent: a busy processor may delay one or two.
  static constexpr int missed_until_silent = 3;

  /// An interval so short that a silence, which takes `missed_until_silent` intervals to notice, is
  /// noticed within half of the shorter limit.
  static std::chrono::nanoseconds interval_for(const Settings& settings) {
    std::chrono::nanoseconds interval = negotiation::Heartbeat::max_interval;
    for (const std::chrono::nanoseconds limit : {settings.stall_warning, settings.stall_shutdown})
      if (limit.count() != 0) interval = std::min(interval, limit / (2 * missed_until_silent));
    return interval;
  }

  int parent_;
  std::chrono::nanoseconds interval_;
  TimePoint next_;  // on the steady clock
  negotiation::Heartbeat received_{};
  TimePoint received_at_;
  TimePoint reported_at_;  // the time of the last change of `received_.unresponsive_ancestor`
};

}  // namespace kolo::internal::session
