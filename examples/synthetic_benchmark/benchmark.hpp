// SPDX-License-Identifier: Apache-2.0
// The measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"

namespace benchmark {

/// Images per second, one value per iteration unless stated otherwise.
struct Measurement {
  std::string device;             ///< "CPU" or "GPU".
  std::int64_t parameters = 0;    ///< Number of trainable values.
  std::vector<double> steps;      ///< This rank, one value per batch.
  std::vector<double> this_rank;  ///< This rank, with the exchange of gradients.
  std::vector<double> all_ranks;  ///< Sum over the ranks.
  std::vector<double> one_alone;  ///< Rank 0 while the others wait; empty if not requested.
  std::vector<double>
      side_by_side;  ///< Sum over the ranks, running at once without exchange; likewise.
};

/// Trains and measures. Rank 0 prints progress unless the format is JSON. Collective.
[[nodiscard]] Measurement measure(const Options& options);

}  // namespace benchmark
