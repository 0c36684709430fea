// SPDX-License-Identifier: Apache-2.0
// Runs many random jobs, one for each seed, and counts the results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/campaign.hpp"

namespace kolo::internal::rendezvous {

struct Campaign : campaign::Outcome {
  std::uint64_t generations = 0;
  std::uint64_t results = 0;
  std::uint64_t lost = 0;
  std::uint64_t failed = 0;
  std::uint64_t largest = 0;
};

/// Runs jobs in `threads` threads until `max_failures` have broken a promise. The description of a
/// failure contains the job with the fewest faults that was found to break the same promise.
[[nodiscard]] Campaign run_campaign(const campaign::Options& options, int threads,
                                    std::size_t max_failures = 3);

}  // namespace kolo::internal::rendezvous
