// SPDX-License-Identifier: Apache-2.0
#include "training/apportion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

struct Problem {
  std::int64_t total = 0;
  Numbers speeds{};
  std::vector<ShareBounds> bounds{};

  [[nodiscard]] Numbers solved() const { return apportion(total, speeds, bounds); }
};

// A problem with a solution: a random one, around which the bounds lie.
Problem random_problem(std::mt19937& random, std::int64_t max_share) {
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  Problem problem;
  for (std::int64_t ranks = draw(1, 12); ranks > 0; --ranks) {
    const std::int64_t share = draw(0, max_share);
    problem.total += share;
    problem.speeds.push_back(draw(1, std::int64_t{1} << draw(0, 30)));
    problem.bounds.push_back({.min = draw(0, share), .max = draw(share, 2 * max_share)});
  }
  return problem;
}

// Gives one example after the other to the rank that completes it first.
Numbers one_by_one(const Problem& problem) {
  Numbers shares;
  std::int64_t left = problem.total;
  for (const ShareBounds& bounds : problem.bounds) {
    shares.push_back(bounds.min);
    left -= bounds.min;
  }
  for (; left > 0; --left) {
    std::size_t next = shares.size();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] == problem.bounds[i].max) continue;
      if (next == shares.size() ||
          (shares[i] + 1) * problem.speeds[next] < (shares[next] + 1) * problem.speeds[i])
        next = i;
    }
    ++shares.at(next);
  }
  return shares;
}

Problem without_bounds(std::int64_t total, const Numbers& speeds) {
  return {total, speeds, std::vector<ShareBounds>(speeds.size(), {.min = 0, .max = total})};
}

TEST(Apportion, SharesFollowTheSpeeds) {
  EXPECT_THAT(without_bounds(70, {2, 2, 1, 2}).solved(), ElementsAre(20, 20, 10, 20));
  EXPECT_THAT(without_bounds(10, {1, 1, 1}).solved(), ElementsAre(4, 3, 3));
  EXPECT_THAT(without_bounds(2, {1, 1, 1}).solved(), ElementsAre(1, 1, 0));
  EXPECT_THAT(without_bounds(0, {3, 4}).solved(), ElementsAre(0, 0));
  EXPECT_THAT(without_bounds(5, {0, 1, 0}).solved(), ElementsAre(0, 5, 0));
}

TEST(Apportion, BoundsHold) {
  const Numbers speeds = {1, 1, 8};
  EXPECT_THAT(apportion(100, speeds, std::vector<ShareBounds>{{15, 100}, {0, 100}, {0, 100}}),
              ElementsAre(15, 9, 76));
  EXPECT_THAT(apportion(100, speeds, std::vector<ShareBounds>{{0, 100}, {0, 100}, {0, 50}}),
              ElementsAre(25, 25, 50));
}

TEST(Apportion, TheLargestNumbersDoNotOverflow) {
  const std::int64_t total = max_apportioned;
  EXPECT_THAT(without_bounds(total, {max_apportioned, 1}).solved(), ElementsAre(total, 0));
  EXPECT_THAT(without_bounds(total, {1, 1}).solved(), ElementsAre(total / 2, total / 2));
  EXPECT_THAT(without_bounds(total, {max_apportioned, max_apportioned}).solved(),
              ElementsAre(total / 2, total / 2));
}

TEST(Apportion, RandomProblemsHaveTheSolutionOfOneExampleAtATime) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const Problem problem = random_problem(random, 40);
    ASSERT_EQ(problem.solved(), one_by_one(problem)) << "round " << round;
  }
}

TEST(Apportion, NoMoveOfAnExampleShortensTheLongestTime) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const Problem problem = random_problem(random, std::int64_t{1} << 25);
    const Numbers shares = problem.solved();
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), problem.total);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      ASSERT_GE(shares[i], problem.bounds[i].min);
      ASSERT_LE(shares[i], problem.bounds[i].max);
      if (shares[i] == problem.bounds[i].min) continue;
      for (std::size_t j = 0; j < shares.size(); ++j) {
        if (j == i || shares[j] == problem.bounds[j].max) continue;
        ASSERT_GE((shares[j] + 1) * problem.speeds[i], shares[i] * problem.speeds[j])
            << "round " << round << ": an example of rank " << i << " for rank " << j;
      }
    }
  }
}

}  // namespace
}  // namespace kolo::internal
