// Whether the ranks above go on, where no shared memory shows it.
#pragma once

#include <chrono>
#include <optional>

#include "negotiation/wire/message.hpp"

namespace kolo::internal::session {

/// What is sent to the ranks below and heard of the rank above. Heartbeats travel down the tree,
/// from host to host: a rank that is stopped is noticed by those that wait for what it would pass
/// on.
class HeartbeatMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `parent`: -1 if there is none, or shared memory shows what it does. Ranks below shall notice
  /// in time a silence that lasts for `warning` or `shutdown` (0: never).
  HeartbeatMonitor(int parent, std::chrono::nanoseconds warning, std::chrono::nanoseconds shutdown,
                   TimePoint now);

  /// What to send to the ranks below; nothing between heartbeats.
  [[nodiscard]] std::optional<negotiation::Heartbeat> next(TimePoint now);

  /// From the rank above.
  void hear(const negotiation::Heartbeat& heartbeat, TimePoint now);

  /// This rank could not listen: silence begins anew.
  void reset_after_pause(TimePoint now) { heard_at_ = now; }

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
  negotiation::Heartbeat heard_{};
  TimePoint heard_at_;
  TimePoint reported_at_;  // when `heard_.unresponsive_ancestor` was new
};

}  // namespace kolo::internal::session
