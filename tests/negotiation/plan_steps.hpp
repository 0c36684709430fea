// SPDX-License-Identifier: Apache-2.0
// Repeated steps, and the ranks that run them, for the tests of plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "simulation.hpp"

namespace kolo::internal::test {

inline Simulation::Options options_for(std::uint64_t seed, int max_ranks) {
  std::mt19937_64 random(seed);
  const auto ranks = 1 + random() % static_cast<std::uint64_t>(max_ranks);
  Simulation::Options options;
  options.node_of.assign(ranks, 0);
  options.seed = seed;
  options.fusion_threshold = std::int64_t{1} << (random() % 14);
  options.cache_capacity = static_cast<std::int64_t>(random() % 24);
  options.replay = true;
  return options;
}

/// Calls `test(simulation)` for each seed, until one fails.
inline void for_seeds(std::uint64_t seeds, int max_ranks,
                      const std::function<void(Simulation&)>& test, bool clocks_run = true) {
  for (std::uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation::Options options = options_for(seed, max_ranks);
    options.clocks_run = clocks_run;
    Simulation simulation(options);
    test(simulation);
  }
}

inline std::uint64_t draw(Simulation& simulation, std::uint64_t below) {
  return simulation.random()() % below;
}

inline Key key_of(std::uint64_t number) { return {.name = "key" + std::to_string(number)}; }

/// One step of a program: every rank submits every key, most ranks in the same order, and waits.
inline void step(Simulation& simulation, std::uint64_t keys,
                 const std::function<Descriptor(int rank, std::uint64_t key)>& descriptor,
                 const std::function<void(int rank, std::uint64_t key)>& before = {}) {
  for (int rank = 0; rank < simulation.ranks(); ++rank) {
    std::vector<std::uint64_t> order(keys);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    if (!before && draw(simulation, 20) == 0)
      std::shuffle(order.begin(), order.end(), simulation.random());
    for (const std::uint64_t key : order) {
      if (before) before(rank, key);
      simulation.submit(rank, key_of(key), descriptor(rank, key));
      if (draw(simulation, 10) == 0 && key == order.back()) simulation.wait(rank);
    }
  }
}

inline Descriptor plain(int /*rank*/, std::uint64_t key) {
  return floats(static_cast<std::int64_t>(1 + key * 40));
}

inline void expect_all_executed(const Simulation& simulation) {
  expect_consistent(simulation);
  EXPECT_TRUE(simulation.finished());
  for (int rank = 0; rank < simulation.ranks(); ++rank)
    for (const Outcome& outcome : simulation.outcomes(rank))
      EXPECT_FALSE(outcome.failure) << outcome.failure->message;
}

}  // namespace kolo::internal::test
