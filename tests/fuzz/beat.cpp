// How a rank above says that it goes on.
#include "session/heartbeat.hpp"

#include "target.hpp"

namespace kolo::fuzz {
namespace {

using session::Beat;

constexpr std::uint64_t number = 4711;

bool run(Bytes bytes) {
  const auto told = session::decode_beat(number, std::as_bytes(bytes));
  if (!told) return false;
  require(told->interval.count() >= 0 && told->interval <= Beat::longest_interval &&
              told->silent_above >= -1,
          "a beat says what no rank sends");
  require(session::decode_beat(number, session::encode(number, *told)) == told,
          "a beat is another one when it is written and read again");
  return true;
}

Seed seed_of(const std::string& name, const Beat& beat) {
  const transport::Message bytes = session::encode(number, beat);
  return {name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

std::vector<Seed> seeds() {
  return {seed_of("usual", {}),
          seed_of("silent", {.silent_above = 70'000, .interval = std::chrono::milliseconds(117)})};
}

}  // namespace

const Target beat_target{.name = "beat", .most_bytes = 64, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
