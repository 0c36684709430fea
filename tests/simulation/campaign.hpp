// SPDX-License-Identifier: Apache-2.0
// Runs many random programs, one for each seed, and counts their events.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kolo::internal::simulation {

struct Campaign {
  std::uint64_t runs = 0;
  std::uint64_t answers = 0;
  std::uint64_t batches = 0;
  std::uint64_t failures = 0;
  std::uint64_t replayed = 0;
  std::uint64_t plans = 0;
  // By seed: the violation, and the smallest program with it.
  std::map<std::uint64_t, std::string> broken{};
};

/// Runs the programs of the seeds from `first`, in `jobs` threads, until `max_broken` have failed.
[[nodiscard]] Campaign run_campaign(std::uint64_t first, std::uint64_t runs, int jobs,
                                    std::size_t max_broken = 3);

}  // namespace kolo::internal::simulation
