// SPDX-License-Identifier: Apache-2.0
// The time by which a rank judges others.
#pragma once

#include <algorithm>
#include <chrono>

namespace kolo::internal {

/// A clock without the pauses of this process. While a batch system or a debugger has stopped the
/// process, it neither receives nor sends, so it must not blame other ranks for that time. One such
/// clock of a session serves everything that times other ranks: the transport, negotiation and the
/// periodic checks. Records, and values for other processes, have the time of the steady clock.
class SessionClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// The most time that one pass adds. A driver makes a pass at least every 0.1 s, so any further
  /// time is a pause. If the process gets little processor time, the clock is slow but never stops.
  static constexpr std::chrono::milliseconds max_step{250};

  /// `real`: the time of the steady clock, here and below.
  explicit SessionClock(TimePoint real) : real_(real) {}

  /// Call it at the start of each pass, or in each turn of a loop that waits. Returns the pause
  /// since the last call; 0: none.
  std::chrono::nanoseconds advance(TimePoint real) {
    const std::chrono::nanoseconds pause =
        std::max(real - real_ - max_step, TimePoint::duration(0));
    real_ = real;
    paused_ += pause;
    return pause;
  }

  [[nodiscard]] TimePoint now() const { return real_ - paused_; }
  [[nodiscard]] TimePoint real() const { return real_; }
  /// The time of the steady clock at which this one shows `time`, if there is no further pause.
  [[nodiscard]] TimePoint to_real(TimePoint time) const { return time + paused_; }

 private:
  TimePoint real_;
  std::chrono::nanoseconds paused_{};
};

/// The end of a loop that waits for other processes before a session has a clock. The pauses of
/// this process put it off.
class PatientDeadline {
 public:
  using TimePoint = SessionClock::TimePoint;

  /// The longest wait in a turn of the loop: a longer one would count as a pause in part.
  static constexpr std::chrono::milliseconds max_turn{200};

  explicit PatientDeadline(std::chrono::nanoseconds timeout,
                           TimePoint real = std::chrono::steady_clock::now())
      : clock_(real), until_(clock_.now() + timeout) {}

  /// The time that is left, 0 at least. Call it in each turn.
  [[nodiscard]] std::chrono::nanoseconds left(TimePoint real = std::chrono::steady_clock::now()) {
    clock_.advance(real);
    return std::max<std::chrono::nanoseconds>(until_ - clock_.now(), std::chrono::nanoseconds(0));
  }
  [[nodiscard]] bool is_over() { return left().count() == 0; }
  /// Counts all time since the last look, which a call has taken: it was no pause.
  void count_call(TimePoint real = std::chrono::steady_clock::now()) {
    until_ -= clock_.advance(real);
  }

 private:
  SessionClock clock_;
  TimePoint until_;
};

}  // namespace kolo::internal
