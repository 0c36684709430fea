// SPDX-License-Identifier: Apache-2.0
// Detects ranks above that do not respond, where no shared memory shows it.
#pragma once

#include <chrono>
#include <optional>

#include "base/settings.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::session {

/// Sends heartbeats to the ranks below and receives those of the rank above. Heartbeats travel down
/// the tree, from host to host: the ranks below a stopped rank, which wait for its messages,
/// notice.
class HeartbeatMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `parent`: -1 if there is none, or if shared memory shows what it does. Heartbeats are frequent
  /// enough for ranks below to notice a silence within the limits of `settings`.
  HeartbeatMonitor(int parent, const Settings& settings, TimePoint now);

  /// The heartbeat to send to the ranks below, if one is due.
  [[nodiscard]] std::optional<negotiation::Heartbeat> next(TimePoint now);

  /// A heartbeat has come from the rank above.
  void receive(const negotiation::Heartbeat& heartbeat, TimePoint now);

  /// This rank could not receive: silence begins anew.
  void reset_after_pause(TimePoint now) { received_at_ = now; }

  struct Silence {
    int rank;
    TimePoint since;
  };
  /// The rank above, if it has missed three heartbeats, or else the ancestor that it calls
  /// unresponsive.
  [[nodiscard]] std::optional<Silence> silence(TimePoint now) const;

 private:
  int parent_;
  std::chrono::nanoseconds interval_;
  TimePoint next_;
  negotiation::Heartbeat received_{};
  TimePoint received_at_;
  TimePoint reported_at_;  // when `received_.unresponsive_ancestor` was new
};

}  // namespace kolo::internal::session
