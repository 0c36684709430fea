// SPDX-License-Identifier: Apache-2.0
// Runs many random programs, one for each seed, and counts their events.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/campaign.hpp"

namespace kolo::internal::simulation {

struct Campaign : campaign::Outcome {
  std::uint64_t answers = 0;
  std::uint64_t batches = 0;
  std::uint64_t errors = 0;
  std::uint64_t replayed = 0;
  std::uint64_t plans = 0;
};

/// Runs programs in `jobs` threads until `max_failures` have failed. The description of a failure
/// contains the smallest program that was found to break the same promise.
[[nodiscard]] Campaign run_campaign(const campaign::Options& options, int jobs,
                                    std::size_t max_failures = 3);

}  // namespace kolo::internal::simulation
