// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace benchmark {

Spread spread_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / count;
  double variance = 0.0;
  for (const double value : values) {
    variance += (value - spread.mean) * (value - spread.mean) / count;
  }
  spread.deviation = std::sqrt(variance);
  return spread;
}

double mean_speed_of(const std::vector<double>& speeds) {
  double times = 0.0;
  for (const double speed : speeds) times += 1.0 / speed;
  return static_cast<double>(speeds.size()) / times;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double jitter_of(std::vector<double> values) {
  const double median = median_of(values);
  for (double& value : values) value = std::abs(value - median);
  return 1.4826 * median_of(std::move(values));
}

}  // namespace benchmark
