// SPDX-License-Identifier: Apache-2.0
// Spread of measured speeds.
#pragma once

#include <vector>

namespace benchmark {

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;  ///< Standard deviation of the values, not of their mean.
};

/// The mean and deviation of the values. Needs at least one value.
[[nodiscard]] Spread spread_of(const std::vector<double>& values);

/// The mean speed over consecutive, equal amounts of work: the work of one value divided by the
/// mean time. Needs at least one value, all positive.
[[nodiscard]] double mean_speed_of(const std::vector<double>& speeds);

/// The middle value, or the mean of the two middle ones. Needs at least one value.
[[nodiscard]] double median_of(std::vector<double> values);

/// The jitter of tf_cnn_benchmarks: the median distance from the median, scaled to equal the
/// standard deviation of a normal distribution. A few outliers do not change it.
[[nodiscard]] double jitter_of(std::vector<double> values);

}  // namespace benchmark
