// SPDX-License-Identifier: Apache-2.0
// A sampler whose ranks have batches of different sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "indices.hpp"
#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

using kolo::DistributedSampler;
using kolo::internal::test::Indices;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t rest_of_epoch = 1'000'000;

std::vector<DistributedSampler> samplers_of(int ranks, std::int64_t examples, bool shuffle = true) {
  std::vector<DistributedSampler> samplers;
  samplers.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    samplers.emplace_back(kolo::DistributedSamplerOptions{
        .examples = examples, .rank = rank, .ranks = ranks, .shuffle = shuffle, .seed = 3});
  return samplers;
}

// Runs up to `steps` steps of all ranks, and returns their examples in the order of the steps and
// ranks. Each batch is cut out of the rest of the epoch, as a loader cuts it.
Indices train(std::vector<DistributedSampler>& samplers, const Indices& shares,
              std::int64_t steps) {
  steps = std::min(steps, samplers[0].steps_left(shares));
  std::vector<Indices> rests;
  rests.reserve(samplers.size());
  for (const DistributedSampler& sampler : samplers) rests.push_back(sampler.indices(shares));
  Indices seen;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t rank = 0; rank < samplers.size(); ++rank) {
      const auto size = static_cast<std::size_t>(shares[rank]);
      const auto begin = std::min(rests[rank].size(), static_cast<std::size_t>(step) * size);
      const auto end = std::min(rests[rank].size(), begin + size);
      EXPECT_EQ(static_cast<std::int64_t>(end - begin), samplers[rank].next_sizes(shares)[rank]);
      seen.insert(seen.end(), rests[rank].begin() + static_cast<std::ptrdiff_t>(begin),
                  rests[rank].begin() + static_cast<std::ptrdiff_t>(end));
    }
    for (DistributedSampler& sampler : samplers) sampler.advance(shares);
  }
  return seen;
}

TEST(SamplerShares, EachStepTakesTheNextPositionsOfTheOrder) {
  auto samplers = samplers_of(3, 20, /*shuffle=*/false);
  const Indices shares = {4, 1, 2};
  EXPECT_THAT(samplers[0].indices(shares), ElementsAre(0, 1, 2, 3, 7, 8, 9, 10, 14, 15, 16, 17));
  EXPECT_THAT(samplers[1].indices(shares), ElementsAre(4, 11, 18));
  EXPECT_THAT(samplers[2].indices(shares), ElementsAre(5, 6, 12, 13, 19));
  EXPECT_EQ(samplers[0].steps_left(shares), 3);
  samplers[2].advance(shares);
  EXPECT_EQ(samplers[2].consumed(), 7);
  EXPECT_THAT(samplers[2].indices(shares), ElementsAre(12, 13, 19));
}

TEST(SamplerShares, TheLastStepHasTheProportionOfTheShares) {
  auto samplers = samplers_of(3, 17);
  const Indices shares = {4, 1, 2};
  train(samplers, shares, 2);
  EXPECT_THAT(samplers[1].next_sizes(shares), ElementsAre(2, 0, 1));
  EXPECT_EQ(samplers[0].weight(shares), 2.0 * 3 / 3);
  EXPECT_EQ(samplers[1].weight(shares), 0.0);
  EXPECT_EQ(samplers[2].weight(shares), 1.0 * 3 / 3);
  train(samplers, shares, 1);
  EXPECT_THAT(samplers[1].next_sizes(shares), Each(0));
  EXPECT_EQ(samplers[0].steps_left(shares), 0);
  EXPECT_EQ(samplers[0].weight(shares), 0.0);
  EXPECT_THAT(samplers[0].indices(shares), IsEmpty());
}

TEST(SamplerShares, AllRanksTogetherSeeTheOrderOfOneProcess) {
  const Indices order = samplers_of(1, 101)[0].indices();
  auto samplers = samplers_of(4, 101);
  EXPECT_EQ(train(samplers, {5, 1, 3, 4}, rest_of_epoch), order);
}

// The state is that of a sampler without shares, so that either may go on.
TEST(SamplerShares, EveryExampleOnceWithChangingSharesAndRanks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int round = 0; round < 100; ++round) {
    const std::int64_t examples = draw(0, 300);
    const Indices order = samplers_of(1, examples)[0].indices();
    Indices seen;
    std::string state = samplers_of(1, examples)[0].state();
    for (int part = 0; part < 6; ++part) {
      auto samplers = samplers_of(draw(1, 6), examples);
      for (DistributedSampler& sampler : samplers) sampler.load_state(state);
      Indices shares;
      for (std::size_t rank = 0; rank < samplers.size(); ++rank) shares.push_back(draw(1, 9));
      const Indices more = train(samplers, shares, part == 5 ? rest_of_epoch : draw(0, 5));
      seen.insert(seen.end(), more.begin(), more.end());
      state = samplers.back().state();
    }
    ASSERT_EQ(seen, order) << "round " << round;
  }
}

TEST(SamplerShares, WeightsAddUpToTheNumberOfRanks) {
  for (std::int64_t examples = 1; examples <= 40; ++examples) {
    auto samplers = samplers_of(3, examples);
    const Indices shares = {7, 2, 4};
    double weights = 0.0;
    for (const DistributedSampler& sampler : samplers) weights += sampler.weight(shares);
    EXPECT_NEAR(weights, 3.0, 1e-12) << examples << " examples";
  }
}

TEST(SamplerShares, ARankMayHaveNoShare) {
  auto samplers = samplers_of(3, 50);
  const Indices seen = train(samplers, {3, 0, 2}, rest_of_epoch);
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_THAT(samplers_of(3, 50)[1].indices(Indices{3, 0, 2}), IsEmpty());
}

TEST(SamplerShares, RefusesSharesThatDoNotFit) {
  auto sampler = samplers_of(3, 50)[0];
  const std::int64_t largest = std::int64_t{1} << 30;
  for (const Indices& shares : {Indices{}, Indices{1, 2}, Indices{1, 2, 3, 4}, Indices{1, -1, 3},
                                Indices{0, 0, 0}, Indices{largest, 1, 0}}) {
    EXPECT_THROW((void)sampler.indices(shares), kolo::InvalidArgument);
    EXPECT_THROW((void)sampler.steps_left(shares), kolo::InvalidArgument);
    EXPECT_THROW((void)sampler.next_sizes(shares), kolo::InvalidArgument);
    EXPECT_THROW((void)sampler.weight(shares), kolo::InvalidArgument);
    EXPECT_THROW(sampler.advance(shares), kolo::InvalidArgument);
  }
  EXPECT_EQ(sampler.consumed(), 0);
  EXPECT_EQ(sampler.steps_left(Indices{largest, 0, 0}), 1);
}

}  // namespace
