// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <algorithm>

namespace perf {

Latency summarize(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const std::size_t count = seconds.size();
  const double median = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2.0;
  const double p90 = seconds[(9 * count + 9) / 10 - 1];
  return {.median = 1e6 * median, .p90 = 1e6 * p90, .max = 1e6 * seconds.back()};
}

double algorithm_bandwidth(std::int64_t bytes, double microseconds) {
  return microseconds > 0.0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0.0;
}

std::optional<double> bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::allreduce: return 2.0 * others;
    case Operation::allgather:
    case Operation::alltoall:
    case Operation::reducescatter: return others;
    case Operation::broadcast: return 1.0;
    case Operation::barrier: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace perf
