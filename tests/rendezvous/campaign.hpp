// SPDX-License-Identifier: Apache-2.0
// Runs many random jobs, one for each seed, and counts the results.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kolo::internal::rendezvous {

struct Campaign {
  std::uint64_t runs = 0;
  std::uint64_t generations = 0;
  std::uint64_t results = 0;
  std::uint64_t lost = 0;
  std::uint64_t failed = 0;
  std::uint64_t largest = 0;
  std::map<std::uint64_t, std::string> broken{};  // by seed
};

/// Runs the jobs of the seeds from `first`, in `threads` threads, until `max_broken` have failed.
[[nodiscard]] Campaign run_campaign(std::uint64_t first, std::uint64_t runs, int threads,
                                    std::size_t max_broken = 3);

}  // namespace kolo::internal::rendezvous
