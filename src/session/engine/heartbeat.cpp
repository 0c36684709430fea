// SPDX-License-Identifier: Apache-2.0
#include "session/engine/heartbeat.hpp"

#include <algorithm>

namespace kolo::internal::session {
namespace {

using negotiation::Heartbeat;
using std::chrono::nanoseconds;

/// Missed heartbeats until a rank counts as silent: a busy processor may delay one or two.
constexpr int missed_until_silent = 3;

/// An interval so short that a silence, which takes `missed_until_silent` intervals to notice, is
/// noticed within half of the shorter limit.
nanoseconds interval_for(const Settings& settings) {
  nanoseconds interval = Heartbeat::max_interval;
  for (const nanoseconds limit : {settings.stall_warning, settings.stall_shutdown})
    if (limit.count() != 0) interval = std::min(interval, limit / (2 * missed_until_silent));
  return interval;
}

}  // namespace

HeartbeatMonitor::HeartbeatMonitor(int parent, const Settings& settings, TimePoint now)
    : parent_(parent),
      interval_(interval_for(settings)),
      next_(now),
      received_at_(now),
      reported_at_(now) {}

std::optional<Heartbeat> HeartbeatMonitor::next(TimePoint now) {
  if (now < next_) return std::nullopt;
  next_ = now + interval_;
  const std::optional<Silence> above = silence(now);
  return Heartbeat{above ? above->rank : -1, interval_};
}

void HeartbeatMonitor::receive(const Heartbeat& heartbeat, TimePoint now) {
  if (heartbeat.unresponsive_ancestor != received_.unresponsive_ancestor) reported_at_ = now;
  received_ = heartbeat;
  received_at_ = now;
}

std::optional<HeartbeatMonitor::Silence> HeartbeatMonitor::silence(TimePoint now) const {
  if (parent_ < 0) return std::nullopt;
  if (now - received_at_ > missed_until_silent * received_.interval)
    return Silence{parent_, received_at_};
  if (received_.unresponsive_ancestor < 0) return std::nullopt;
  return Silence{received_.unresponsive_ancestor, reported_at_};
}

}  // namespace kolo::internal::session
