// What is said about a row's measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "options.hpp"

namespace perf {

/// Of one side's iterations, in microseconds.
struct Latency {
  double median = 0.0;
  double p90 = 0.0;
  double max = 0.0;
};

/// `seconds`: one per iteration, at least one. The median of an even number is the mean of the two
/// in the middle; the 90th percentile is the smallest that at least 90 % do not exceed.
[[nodiscard]] Latency summarize(std::vector<double> seconds);

/// Bytes of a row over time, in GB/s (10^9).
[[nodiscard]] double algorithm_bandwidth(std::int64_t bytes, double microseconds);

/// What the algorithm bandwidth is multiplied by to give the bus bandwidth: the part of the data
/// that an optimal algorithm sends through each rank's link, so that it can be compared with the
/// hardware's, whatever the number of ranks. As nccl-tests defines it. None for a barrier.
[[nodiscard]] std::optional<double> bus_factor(Operation operation, int ranks);

}  // namespace perf
