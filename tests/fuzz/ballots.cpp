// What ranks tell each other at the start, perhaps from other versions of the library.
#include <algorithm>
#include <cstring>

#include "kolo/error.hpp"
#include "session/ballot.hpp"
#include "target.hpp"

namespace kolo::fuzz {
namespace {

using session::Ballot;

constexpr std::size_t most_ranks = 3;

/// As many ballots as there are, the last one filled up with zeros.
std::vector<Ballot> read(Bytes bytes) {
  bytes = bytes.first(std::min(bytes.size(), most_ranks * sizeof(Ballot)));
  std::vector<Ballot> ballots((bytes.size() + sizeof(Ballot) - 1) / sizeof(Ballot));
  if (!bytes.empty()) std::memcpy(ballots.data(), bytes.data(), bytes.size());
  return ballots;
}

bool run(Bytes bytes) {
  const std::vector<Ballot> ballots = read(bytes);
  if (ballots.empty()) return false;
  try {
    session::require_unanimity(session::collect_complaints(ballots));
  } catch (const InvalidArgument& error) {
    require(!error.ranks().empty(), "a refusal that names nobody");
    for (const int rank : error.ranks())
      require(rank >= 0 && static_cast<std::size_t>(rank) < ballots.size(), "a rank that is none");
    return false;
  }
  for (const Ballot& ballot : ballots)
    require(ballot.version == ballots.front().version && ballot.problem.front() == '\0',
            "a problem is passed over");
  return true;
}

std::string bytes_of(const std::vector<Ballot>& ballots) {
  return {reinterpret_cast<const char*>(ballots.data()), ballots.size() * sizeof(Ballot)};
}

std::vector<Seed> seeds() {
  const Ballot good = Ballot::make("0.1.0", "");
  return {{"alone", bytes_of({good})}, {"three", bytes_of({good, good, good})}};
}

}  // namespace

const Target ballots_target{
    .name = "ballots", .most_bytes = most_ranks * sizeof(Ballot), .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
