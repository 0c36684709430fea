#include "session/heartbeat.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace kolo::session {
namespace {

using std::chrono::nanoseconds;

constexpr int beats_of_silence = 3;

// Begins as no FlatBuffer of that size can: with an offset far behind its end.
constexpr std::array<char, 8> mark{'K', 'o', 'l', 'o', 'b', 'e', 'a', 't'};

struct Wire {
  std::array<char, 8> mark;
  std::uint64_t session;
  std::int64_t silent_above;
  std::int64_t interval_ns;
};

/// Twice as often as silence has to be seen.
nanoseconds interval_for(nanoseconds warning, nanoseconds shutdown) {
  nanoseconds interval = Beat::longest_interval;
  for (const nanoseconds limit : {warning, shutdown})
    if (limit.count() != 0) interval = std::min(interval, limit / (2 * beats_of_silence));
  return interval;
}

}  // namespace

transport::Message encode(std::uint64_t session, const Beat& beat) {
  const Wire wire{mark, session, beat.silent_above, beat.interval.count()};
  transport::Message message(sizeof wire);
  std::memcpy(message.data(), &wire, sizeof wire);
  return message;
}

std::optional<Beat> decode_beat(std::uint64_t session, std::span<const std::byte> message) {
  Wire wire{};
  if (message.size() != sizeof wire) return std::nullopt;
  std::memcpy(&wire, message.data(), sizeof wire);
  if (wire.mark != mark || wire.session != session || wire.silent_above < -1 ||
      wire.silent_above > std::numeric_limits<int>::max() || wire.interval_ns < 0 ||
      wire.interval_ns > Beat::longest_interval.count())
    return std::nullopt;
  return Beat{static_cast<int>(wire.silent_above), nanoseconds(wire.interval_ns)};
}

Heartbeat::Heartbeat(int parent, nanoseconds warning, nanoseconds shutdown, TimePoint now)
    : parent_(parent),
      interval_(interval_for(warning, shutdown)),
      next_(now),
      heard_at_(now),
      told_at_(now) {}

std::optional<Beat> Heartbeat::next(TimePoint now) {
  if (now < next_) return std::nullopt;
  next_ = now + interval_;
  const std::optional<Silence> above = silence(now);
  return Beat{above ? above->rank : -1, interval_};
}

void Heartbeat::hear(const Beat& beat, TimePoint now) {
  if (beat.silent_above != heard_.silent_above) told_at_ = now;
  heard_ = beat;
  heard_at_ = now;
}

std::optional<Heartbeat::Silence> Heartbeat::silence(TimePoint now) const {
  if (parent_ < 0) return std::nullopt;
  if (now - heard_at_ > beats_of_silence * heard_.interval) return Silence{parent_, heard_at_};
  if (heard_.silent_above < 0) return std::nullopt;
  return Silence{heard_.silent_above, told_at_};
}

}  // namespace kolo::session
