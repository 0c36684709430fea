// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

using testing::DoubleNear;
using testing::ElementsAre;

class Average : public testing::Test {
 protected:
  kolo::Session session_;
  const double rank_ = kolo::rank();
  const double size_ = kolo::size();
};

TEST_F(Average, OfOneValue) { EXPECT_DOUBLE_EQ(kolo::average(rank_ + 1.0), (size_ + 1.0) / 2.0); }

TEST_F(Average, CountsEachRankByItsWeight) {
  // Sum of r * (r + 1) over sum of (r + 1) is 2 (n - 1) / 3.
  const std::vector<double> means = kolo::average({rank_, 5.0}, rank_ + 1.0);
  EXPECT_THAT(means,
              ElementsAre(DoubleNear(2.0 * (size_ - 1.0) / 3.0, 1e-12), DoubleNear(5.0, 1e-12)));
}

TEST_F(Average, IsTheSameBitsOnEveryRank) {
  const double mean = kolo::average(0.1 * (rank_ + 1.0) / 3.0);
  auto bits = std::bit_cast<std::uint64_t>(mean);
  kolo::broadcast(bits, 0);
  EXPECT_EQ(bits, std::bit_cast<std::uint64_t>(mean));
}

TEST_F(Average, ARankWithoutWeightCountsForNothingWhateverItsValue) {
  const bool last = kolo::rank() == kolo::size() - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> means = kolo::average({last ? nan : 3.0}, last ? 0.0 : 2.0);
  EXPECT_THAT(means, ElementsAre(kolo::size() == 1 ? 0.0 : 3.0));
}

TEST_F(Average, OfNoWeightAtAllIsZero) {
  EXPECT_THAT(kolo::average({1.0, 2.0}, 0.0), ElementsAre(0.0, 0.0));
}

TEST_F(Average, RefusesABadWeightAndLeavesTheSessionUsable) {
  EXPECT_THROW((void)kolo::average({1.0}, -1.0), kolo::InvalidArgument);
  EXPECT_THROW((void)kolo::average({1.0}, std::numeric_limits<double>::infinity()),
               kolo::InvalidArgument);
  EXPECT_DOUBLE_EQ(kolo::average(2.0), 2.0);
}

}  // namespace
