// How a rank of another host says that the session is over.
#include "session/breakdown.hpp"

#include "target.hpp"

namespace kolo::fuzz {
namespace {

using session::Breakdown;

constexpr std::uint64_t number = 4711;

bool run(Bytes bytes) {
  const auto told = session::decode_breakdown(number, std::as_bytes(bytes));
  if (!told) return false;
  const auto again = session::decode_breakdown(number, session::encode(number, *told));
  require(again && again->kind == told->kind && again->reason == told->reason &&
              again->ranks == told->ranks,
          "a breakdown is another one when it is written and read again");
  return true;
}

Seed seed_of(const std::string& name, const Breakdown& breakdown) {
  const transport::Message bytes = session::encode(number, breakdown);
  return {name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

std::vector<Seed> seeds() {
  return {seed_of("lost", {Breakdown::Kind::peer_left, "it is gone", {2, 3, 70'000}}),
          seed_of("stalled", {Breakdown::Kind::stalled, "it does nothing", {1}}),
          seed_of("empty", {Breakdown::Kind::peer_left, "", {}})};
}

}  // namespace

const Target breakdown_target{.name = "breakdown", .most_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
