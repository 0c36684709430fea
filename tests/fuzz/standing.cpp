// SPDX-License-Identifier: Apache-2.0
// The words by which ranks agree on plans.
#include <cstring>

#include "negotiation/replay/board.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using namespace negotiation;

/// Any word says something.
bool run(Bytes bytes) {
  std::uint64_t word = 0;
  if (bytes.size() != sizeof word) return false;
  std::memcpy(&word, bytes.data(), sizeof word);
  const PlanProgress progress = to_plan_progress(word);
  require(progress.epoch <= last_epoch, "an epoch beyond the last");
  require(to_word(progress) == word, "a word is another one when it is written again");
  return true;
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const auto& [name, progress] : {std::pair{"none", PlanProgress{}},
                                       {"going", {1, 17, false}},
                                       {"stopped", {last_epoch, 3, true}}}) {
    const std::uint64_t word = to_word(progress);
    std::string bytes(sizeof word, '\0');
    std::memcpy(bytes.data(), &word, sizeof word);
    all.push_back({name, bytes});
  }
  return all;
}

}  // namespace

const Target standing_target{.name = "standing", .max_bytes = 9, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
