// SPDX-License-Identifier: Apache-2.0
// Statistics of a row's measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "options.hpp"

namespace perf {

/// Latency of one side's iterations, in microseconds.
struct Latency {
  double median = 0.0;
  double p90 = 0.0;
  double max = 0.0;
};

/// Summarizes `seconds`, which has one value per iteration, and at least one. The median of an even
/// number of values is the mean of the middle two; the 90th percentile is the smallest value that
/// at least 90 % of the values do not exceed.
[[nodiscard]] Latency summarize(std::vector<double> seconds);

/// Bytes per time, in GB/s (10^9 bytes).
[[nodiscard]] double algorithm_bandwidth(std::int64_t bytes, double microseconds);

/// The factor from algorithm bandwidth to bus bandwidth, as nccl-tests defines it: the fraction of
/// the data that an optimal algorithm sends through each rank's link. Bus bandwidth is comparable
/// to the hardware's bandwidth for any number of ranks. A barrier has none.
[[nodiscard]] std::optional<double> bus_factor(Operation operation, int ranks);

}  // namespace perf
