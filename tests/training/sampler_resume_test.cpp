// SPDX-License-Identifier: Apache-2.0
// Stopping and resuming within an epoch, with any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "indices.hpp"
#include "kolo/error.hpp"
#include "kolo/training.hpp"

namespace {

using kolo::DistributedSampler;
using kolo::Remainder;
using kolo::internal::test::from_zero_to;
using kolo::internal::test::Indices;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The samplers of all ranks, in step.
class Ranks {
 public:
  Ranks(int ranks, std::int64_t examples, Remainder remainder, std::uint64_t seed = 1) {
    for (int rank = 0; rank < ranks; ++rank) {
      samplers_.emplace_back(kolo::DistributedSamplerOptions{.examples = examples,
                                                             .rank = rank,
                                                             .ranks = ranks,
                                                             .seed = seed,
                                                             .remainder = remainder});
    }
  }

  // Runs up to `steps` steps and appends the examples that the ranks get.
  void train(std::int64_t steps, std::int64_t batch_size, Indices& seen) {
    for (; steps > 0 && samplers_[0].steps_left(batch_size) > 0; --steps) {
      for (DistributedSampler& sampler : samplers_) {
        EXPECT_EQ(sampler.steps_left(batch_size), samplers_[0].steps_left(batch_size));
      }
      for (DistributedSampler& sampler : samplers_) {
        Indices batch = sampler.indices();
        batch.resize(std::min(batch.size(), static_cast<std::size_t>(batch_size)));
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      for (DistributedSampler& sampler : samplers_) sampler.advance(batch_size);
    }
  }

  [[nodiscard]] std::string state() const {
    for (const DistributedSampler& sampler : samplers_) {
      EXPECT_EQ(sampler.state(), samplers_[0].state());
    }
    return samplers_[0].state();
  }

  void load_state(const std::string& state) {
    for (DistributedSampler& sampler : samplers_) sampler.load_state(state);
  }

  void begin_epoch(std::int64_t epoch) {
    for (DistributedSampler& sampler : samplers_) sampler.begin_epoch(epoch);
  }

 private:
  std::vector<DistributedSampler> samplers_;
};

constexpr std::int64_t all_steps = 1'000'000;

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

TEST(SamplerResume, AnotherNumberOfRanksLosesAndRepeatsNoExample) {
  for (int before = 1; before <= 4; ++before) {
    for (int after = 1; after <= 4; ++after) {
      for (const std::int64_t steps : {0, 1, 3, 7}) {
        Indices seen;
        Ranks first(before, 101, Remainder::uneven);
        first.begin_epoch(5);
        first.train(steps, 3, seen);

        Ranks second(after, 101, Remainder::uneven, /*seed=*/99);
        second.load_state(first.state());
        second.train(all_steps, 4, seen);
        EXPECT_EQ(sorted(seen), from_zero_to(101))
            << before << " ranks, then " << after << " after " << steps << " steps";
      }
    }
  }
}

TEST(SamplerResume, ManyTimesWithRandomRanksAndBatches) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int round = 0; round < 50; ++round) {
    const std::int64_t examples = draw(0, 300);
    Ranks ranks(draw(1, 7), examples, Remainder::uneven);
    Indices seen;
    for (int part = 0; part < 5; ++part) {
      ranks.train(draw(0, 4), draw(1, 9), seen);
      const std::string state = ranks.state();
      ranks = Ranks(draw(1, 7), examples, Remainder::uneven);
      ranks.load_state(state);
    }
    ranks.train(all_steps, 5, seen);
    ASSERT_EQ(sorted(seen), from_zero_to(examples));
  }
}

TEST(SamplerResume, TheSameRanksGoOnWithTheSameBatches) {
  for (const Remainder remainder : {Remainder::drop, Remainder::pad, Remainder::uneven}) {
    Indices whole, parts;
    Ranks uninterrupted(3, 100, remainder);
    uninterrupted.train(all_steps, 4, whole);

    Ranks first(3, 100, remainder);
    first.train(5, 4, parts);
    Ranks second(3, 100, remainder);
    second.load_state(first.state());
    second.train(all_steps, 4, parts);
    EXPECT_EQ(whole, parts);
  }
}

TEST(SamplerResume, PadGivesEveryExampleAndEveryRankAsMany) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const std::int64_t examples : {1, 2, 7, 8, 101}) {
      std::set<std::int64_t> distinct;
      for (int rank = 0; rank < ranks; ++rank) {
        const DistributedSampler sampler(
            {.examples = examples, .rank = rank, .ranks = ranks, .remainder = Remainder::pad});
        const Indices mine = sampler.indices(2);
        EXPECT_EQ(static_cast<std::int64_t>(mine.size()), (examples + ranks - 1) / ranks);
        distinct.insert(mine.begin(), mine.end());
      }
      EXPECT_EQ(static_cast<std::int64_t>(distinct.size()), examples);
    }
  }
}

TEST(SamplerResume, PadRepeatsTheBeginningOfTheOrder) {
  kolo::DistributedSamplerOptions options{
      .examples = 7, .rank = 1, .ranks = 3, .shuffle = false, .remainder = Remainder::pad};
  EXPECT_THAT(DistributedSampler(options).indices(0), ElementsAre(1, 4, 0));
  options.rank = 2;
  EXPECT_THAT(DistributedSampler(options).indices(0), ElementsAre(2, 5, 1));
  options.examples = 0;
  EXPECT_THAT(DistributedSampler(options).indices(0), IsEmpty());
}

TEST(SamplerResume, TheLastStepEndsTheEpochForAnyNumberOfRanks) {
  for (const Remainder remainder : {Remainder::drop, Remainder::pad, Remainder::uneven}) {
    Indices seen;
    Ranks four(4, 103, remainder);
    four.train(all_steps, 6, seen);
    Ranks three(3, 103, remainder);
    three.load_state(four.state());
    Indices more;
    three.train(all_steps, 6, more);
    EXPECT_THAT(more, IsEmpty());
  }
}

TEST(SamplerResume, StepsAreCountedOverAllRanks) {
  DistributedSampler sampler({.examples = 103, .rank = 3, .ranks = 4});
  EXPECT_EQ(sampler.steps_left(25), 1);
  EXPECT_EQ(sampler.steps_left(24), 2);
  sampler.advance(24);
  EXPECT_EQ(sampler.consumed(), 96);
  EXPECT_EQ(sampler.indices().size(), 1U);
  sampler.advance(24);
  EXPECT_EQ(sampler.consumed(), 103);
  EXPECT_EQ(sampler.steps_left(1), 0);
  sampler.begin_epoch(1);
  EXPECT_EQ(sampler.consumed(), 0);
  EXPECT_EQ(sampler.epoch(), 1);
  EXPECT_EQ(sampler.indices(), sampler.indices(1));
}

TEST(SamplerResume, TheStateBringsSeedAndEpoch) {
  DistributedSampler saved({.examples = 50, .rank = 0, .ranks = 1, .seed = ~std::uint64_t{0}});
  saved.begin_epoch(7);
  saved.advance(20);
  DistributedSampler loaded({.examples = 50, .rank = 0, .ranks = 1, .seed = 1});
  loaded.load_state(saved.state());
  EXPECT_EQ(loaded.seed(), ~std::uint64_t{0});
  EXPECT_EQ(loaded.epoch(), 7);
  EXPECT_EQ(loaded.indices(), saved.indices());
  EXPECT_EQ(loaded.indices().size(), 30U);
}

TEST(SamplerResume, RefusesAStateThatDoesNotFit) {
  DistributedSampler sampler({.examples = 50, .rank = 0, .ranks = 1});
  const DistributedSampler larger({.examples = 51, .rank = 0, .ranks = 1});
  const DistributedSampler in_order({.examples = 50, .rank = 0, .ranks = 1, .shuffle = false});
  try {
    sampler.load_state(larger.state());
    FAIL() << "no exception";
  } catch (const kolo::InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("51 examples"));
  }
  EXPECT_THROW(sampler.load_state(in_order.state()), kolo::InvalidArgument);
  EXPECT_THROW(sampler.load_state(""), kolo::InvalidArgument);
  EXPECT_THROW(sampler.load_state(sampler.state() + " 1"), kolo::InvalidArgument);
  EXPECT_THROW(sampler.load_state("kolo.sampler.1 0 0 51 50 1"), kolo::InvalidArgument);
  EXPECT_THROW(sampler.load_state("kolo.sampler.1 0 0 x 50 1"), kolo::InvalidArgument);
  EXPECT_EQ(sampler.indices().size(), 50U);
}

TEST(SamplerResume, RefusesABatchWithoutExamples) {
  DistributedSampler sampler({.examples = 50, .rank = 0, .ranks = 1});
  EXPECT_THROW(sampler.advance(0), kolo::InvalidArgument);
  EXPECT_THROW((void)sampler.steps_left(-1), kolo::InvalidArgument);
}

}  // namespace
