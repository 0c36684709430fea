// Whether the rank above goes on, where no shared memory shows it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transport.hpp"

namespace kolo::session {

/// Sent down the tree, from host to host. The kernel of a host answers for a process that is
/// stopped; a beat comes only from its session.
struct Beat {
  static constexpr std::chrono::nanoseconds longest_interval = std::chrono::seconds(1);

  int silent_above = -1;  // a rank further up that says nothing; -1: none is known of
  std::chrono::nanoseconds interval = longest_interval;  // until the next

  friend bool operator==(const Beat&, const Beat&) = default;
};

[[nodiscard]] transport::Message encode(std::uint64_t session, const Beat& beat);

/// Nothing if the message is something else, or of another session.
[[nodiscard]] std::optional<Beat> decode_beat(std::uint64_t session,
                                              std::span<const std::byte> message);

/// What is sent to the ranks below and heard of the one above.
class Heartbeat {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `parent`: -1 if there is none, or shared memory shows what it does. Those below shall see in
  /// time what lasts for `warning` or `shutdown` (0: never).
  Heartbeat(int parent, std::chrono::nanoseconds warning, std::chrono::nanoseconds shutdown,
            TimePoint now);

  /// What to send to the ranks below; nothing between beats.
  [[nodiscard]] std::optional<Beat> next(TimePoint now);

  /// From the rank above.
  void hear(const Beat& beat, TimePoint now);

  /// This rank could not listen: silence begins anew.
  void forgive(TimePoint now) { heard_at_ = now; }

  struct Silence {
    int rank;
    TimePoint since;
  };
  /// The rank above, if it has missed three beats, or whom it says to be silent itself.
  [[nodiscard]] std::optional<Silence> silence(TimePoint now) const;

 private:
  int parent_;
  std::chrono::nanoseconds interval_;
  TimePoint next_;
  Beat heard_{};
  TimePoint heard_at_;
  TimePoint told_at_;  // when `heard_.silent_above` was new
};

}  // namespace kolo::session
