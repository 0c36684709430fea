// How measured speeds spread.
#pragma once

#include <vector>

namespace benchmark {

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;  ///< Standard deviation, of the values themselves.
};

/// Of at least one value.
[[nodiscard]] Spread spread_of(const std::vector<double>& values);

/// The middle value, or the mean of the two middle ones. Of at least one value.
[[nodiscard]] double median_of(std::vector<double> values);

/// What tf_cnn_benchmarks calls jitter: the median distance from the median, scaled so that it is
/// the standard deviation of values that are normally distributed. A few outliers leave it alone.
[[nodiscard]] double jitter_of(std::vector<double> values);

}  // namespace benchmark
