// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "indices.hpp"
#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

using kolo::internal::test::from_zero_to;
using kolo::internal::test::Indices;
using testing::ElementsAre;
using testing::IsEmpty;

// The indices of all ranks together, rank by rank.
Indices all_ranks(kolo::DistributedSamplerOptions options, std::int64_t epoch) {
  Indices all;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    const Indices mine = kolo::DistributedSampler(options).indices(epoch);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

TEST(DistributedSampler, WithoutShuffleTheRanksTakeTurns) {
  kolo::DistributedSamplerOptions options{.examples = 7, .ranks = 3, .shuffle = false};
  options.rank = 0;
  EXPECT_THAT(kolo::DistributedSampler(options).indices(0), ElementsAre(0, 3));
  options.remainder = kolo::Remainder::uneven;
  EXPECT_THAT(kolo::DistributedSampler(options).indices(0), ElementsAre(0, 3, 6));
  options.rank = 2;
  EXPECT_THAT(kolo::DistributedSampler(options).indices(0), ElementsAre(2, 5));
}

TEST(DistributedSampler, UnevenCoversEveryExampleOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const std::int64_t examples : {0, 1, 5, 8, 9, 100}) {
      Indices all = all_ranks(
          {.examples = examples, .ranks = ranks, .seed = 3, .remainder = kolo::Remainder::uneven},
          4);
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, from_zero_to(examples)) << ranks << " ranks";
    }
  }
}

TEST(DistributedSampler, DropGivesEveryRankAsManyAndNoneTwice) {
  for (int rank = 0; rank < 4; ++rank) {
    const kolo::DistributedSampler sampler({.examples = 103, .rank = rank, .ranks = 4, .seed = 1});
    EXPECT_EQ(sampler.indices(0).size(), 25U);
  }
  const Indices all = all_ranks({.examples = 103, .ranks = 4, .seed = 1}, 0);
  const std::set<std::int64_t> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), 100U);
  EXPECT_GE(*distinct.begin(), 0);
  EXPECT_LT(*distinct.rbegin(), 103);
}

TEST(DistributedSampler, AnEpochsOrderIsTheSameOnEveryCallAndDiffersFromTheNext) {
  const kolo::DistributedSampler sampler({.examples = 1000, .rank = 0, .ranks = 1, .seed = 42});
  EXPECT_EQ(sampler.indices(0), sampler.indices(0));
  EXPECT_NE(sampler.indices(0), sampler.indices(1));
  EXPECT_NE(sampler.indices(0), from_zero_to(1000));

  const kolo::DistributedSampler other({.examples = 1000, .rank = 0, .ranks = 1, .seed = 43});
  EXPECT_NE(sampler.indices(0), other.indices(0));
}

// The contents of a global batch do not depend on the number of ranks.
TEST(DistributedSampler, TheOrderIsTheSameForAnyNumberOfRanks) {
  const Indices one = kolo::DistributedSampler({.examples = 60, .rank = 0, .ranks = 1}).indices(7);
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Indices mine =
          kolo::DistributedSampler({.examples = 60, .rank = rank, .ranks = ranks}).indices(7);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i],
                  one[i * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)]);
      }
    }
  }
}

TEST(DistributedSampler, ShufflingLeavesNoExampleInItsPlaceMoreOftenThanChance) {
  // The number of fixed points of a random permutation is near 1; summed over 100 epochs, near 100.
  const kolo::DistributedSampler sampler({.examples = 500, .rank = 0, .ranks = 1, .seed = 5});
  int fixed = 0;
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
    const Indices order = sampler.indices(epoch);
    for (std::size_t i = 0; i < order.size(); ++i)
      fixed += order[i] == static_cast<std::int64_t>(i);
  }
  EXPECT_GT(fixed, 50);
  EXPECT_LT(fixed, 150);
}

TEST(DistributedSampler, MoreRanksThanExamples) {
  const kolo::DistributedSampler even({.examples = 2, .rank = 0, .ranks = 3});
  EXPECT_THAT(even.indices(0), IsEmpty());
  EXPECT_THAT(
      all_ranks({.examples = 2, .ranks = 3, .shuffle = false, .remainder = kolo::Remainder::uneven},
                0),
      ElementsAre(0, 1));
}

TEST(DistributedSampler, RefusesWhatMakesNoSense) {
  using kolo::DistributedSampler;
  EXPECT_THROW(DistributedSampler({.examples = -1, .rank = 0, .ranks = 1}), kolo::InvalidArgument);
  EXPECT_THROW(DistributedSampler({.examples = 1, .rank = 2, .ranks = 2}), kolo::InvalidArgument);
  EXPECT_THROW(DistributedSampler({.examples = 1, .rank = -2, .ranks = 2}), kolo::InvalidArgument);
  EXPECT_THROW(DistributedSampler({.examples = 1, .rank = 0, .ranks = 0}), kolo::InvalidArgument);
}

TEST(DistributedSampler, WithoutASessionTheRankMustBeGiven) {
  EXPECT_THROW(kolo::DistributedSampler({.examples = 1}), kolo::NotInitialized);
}

}  // namespace
