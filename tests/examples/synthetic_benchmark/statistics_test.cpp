// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

TEST(Statistics, SpreadIsMeanAndStandardDeviation) {
  // 1 to n: mean (n + 1) / 2, variance (n^2 - 1) / 12.
  for (const int n : {1, 2, 7, 100}) {
    std::vector<double> values;
    for (int i = 1; i <= n; ++i) values.push_back(i);
    const benchmark::Spread spread = benchmark::spread_of(values);
    EXPECT_NEAR(spread.mean, (n + 1) / 2.0, 1e-9);
    EXPECT_NEAR(spread.deviation, std::sqrt((n * n - 1) / 12.0), 1e-9);
  }
}

// 10 images/s for a second and 30 for a third of one: 20 images in 4/3 s.
TEST(Statistics, MeanSpeedIsThatOfEqualWorkInSuccession) {
  EXPECT_NEAR(benchmark::mean_speed_of({10, 30}), 15, 1e-12);
  EXPECT_NEAR(benchmark::mean_speed_of({7}), 7, 1e-12);
}

TEST(Statistics, MedianOfOddAndEvenNumbersOfValuesInAnyOrder) {
  EXPECT_EQ(benchmark::median_of({5, 1, 3}), 3);
  EXPECT_EQ(benchmark::median_of({4, 1, 8, 2}), 3);
  EXPECT_EQ(benchmark::median_of({7}), 7);
}

TEST(Statistics, JitterIsTheScaledMedianDistanceAndIgnoresAnOutlier) {
  // Median 3; distances 2, 1, 0, 1, 997.
  EXPECT_NEAR(benchmark::jitter_of({1, 2, 3, 4, 1000}), 1.4826, 1e-12);
  EXPECT_EQ(benchmark::jitter_of({5, 5, 5}), 0);
}

}  // namespace
