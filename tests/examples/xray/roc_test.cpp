// SPDX-License-Identifier: Apache-2.0
#include "roc.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace {

using xray::area_under_curve;
using xray::Scored;

TEST(AreaUnderCurve, IsOneForPerfectScoresAndZeroForReversedOnes) {
  EXPECT_EQ(area_under_curve({.scores = {1, 2, 3, 4}, .labels = {0, 0, 1, 1}}), 1.0);
  EXPECT_EQ(area_under_curve({.scores = {4, 3, 2, 1}, .labels = {0, 0, 1, 1}}), 0.0);
}

TEST(AreaUnderCurve, CountsTiesHalf) {
  EXPECT_EQ(area_under_curve({.scores = {7, 7, 7, 7, 7}, .labels = {0, 1, 1, 0, 1}}), 0.5);
  // Pairs: 2 > 1, 2 = 2, of two.
  EXPECT_EQ(area_under_curve({.scores = {1, 2, 2}, .labels = {0, 0, 1}}), 0.75);
}

TEST(AreaUnderCurve, NeedsBothLabels) {
  EXPECT_TRUE(std::isnan(area_under_curve({.scores = {1, 2}, .labels = {1, 1}})));
  EXPECT_TRUE(std::isnan(area_under_curve({.scores = {1, 2}, .labels = {0, 0}})));
  EXPECT_TRUE(std::isnan(area_under_curve({})));
}

TEST(AreaUnderCurve, IsTheFractionOfPairsInOrder) {
  const unsigned int seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Scored scored;
  for (int i = 0; i < 300; ++i) {
    scored.scores.push_back(static_cast<float>(random() % 40));
    scored.labels.push_back(i < 2 ? i : static_cast<std::int64_t>(random() % 2));
  }
  double in_order = 0.0, pairs = 0.0;
  for (std::size_t a = 0; a < 300; ++a) {
    for (std::size_t b = 0; b < 300; ++b) {
      if (scored.labels[a] != 1 || scored.labels[b] != 0) continue;
      pairs += 1;
      if (scored.scores[a] > scored.scores[b]) in_order += 1;
      if (scored.scores[a] == scored.scores[b]) in_order += 0.5;
    }
  }
  EXPECT_NEAR(area_under_curve(scored), in_order / pairs, 1e-12);
}

}  // namespace
