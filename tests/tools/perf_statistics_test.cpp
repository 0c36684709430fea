// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <gtest/gtest.h>

namespace perf {
namespace {

TEST(Statistics, OfOneIteration) {
  const Latency latency = summarize({2e-6});
  EXPECT_DOUBLE_EQ(latency.median, 2.0);
  EXPECT_DOUBLE_EQ(latency.p90, 2.0);
  EXPECT_DOUBLE_EQ(latency.max, 2.0);
}

TEST(Statistics, OfAnOddNumber) {
  const Latency latency = summarize({5e-6, 1e-6, 3e-6});
  EXPECT_DOUBLE_EQ(latency.median, 3.0);
  EXPECT_DOUBLE_EQ(latency.p90, 5.0);
  EXPECT_DOUBLE_EQ(latency.max, 5.0);
}

TEST(Statistics, OfTenAndOfTwenty) {
  std::vector<double> seconds;
  for (int i = 10; i >= 1; --i) seconds.push_back(1e-6 * i);
  EXPECT_DOUBLE_EQ(summarize(seconds).median, 5.5);
  EXPECT_DOUBLE_EQ(summarize(seconds).p90, 9.0);
  EXPECT_DOUBLE_EQ(summarize(seconds).max, 10.0);
  for (int i = 11; i <= 20; ++i) seconds.push_back(1e-6 * i);
  EXPECT_DOUBLE_EQ(summarize(seconds).median, 10.5);
  EXPECT_DOUBLE_EQ(summarize(seconds).p90, 18.0);
}

TEST(Statistics, BandwidthIsInBillionsOfBytes) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(4'000'000, 2000.0), 2.0);
}

TEST(Statistics, BusFactorsAreThoseOfNcclTests) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const double others = (ranks - 1.0) / ranks;
    EXPECT_DOUBLE_EQ(bus_factor(Operation::allreduce, ranks).value(), 2.0 * others);
    EXPECT_DOUBLE_EQ(bus_factor(Operation::allgather, ranks).value(), others);
    EXPECT_DOUBLE_EQ(bus_factor(Operation::reducescatter, ranks).value(), others);
    EXPECT_DOUBLE_EQ(bus_factor(Operation::alltoall, ranks).value(), others);
    EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, ranks).value(), 1.0);
    EXPECT_FALSE(bus_factor(Operation::barrier, ranks).has_value());
  }
}

}  // namespace
}  // namespace perf
