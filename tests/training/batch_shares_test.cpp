// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

using kolo::BatchShares;
using kolo::BatchSharesOptions;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Numbers = std::vector<std::int64_t>;

std::int64_t total_of(const Numbers& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

class BatchSharesTest : public testing::Test {
 protected:
  [[nodiscard]] int last() const { return kolo::size() - 1; }

  static void expect_equal_on_all_ranks(const Numbers& shares) {
    Numbers first = shares;
    kolo::broadcast(first, 0);
    EXPECT_EQ(first, shares);
  }

  // As if each rank had computed its share in the seconds that its speed takes.
  static bool agree_at(BatchShares& shares, double examples_per_second) {
    shares.add(shares.own(), static_cast<double>(shares.own()) / examples_per_second);
    return shares.agree();
  }

  // The time of the slowest rank.
  static double step_time(const Numbers& shares, const std::vector<double>& speeds) {
    double longest = 0.0;
    for (std::size_t i = 0; i < shares.size(); ++i)
      longest = std::max(longest, static_cast<double>(shares[i]) / speeds[i]);
    return longest;
  }

  [[nodiscard]] std::vector<double> random_speeds(std::mt19937& random) const {
    std::vector<double> speeds(static_cast<std::size_t>(kolo::size()));
    for (double& speed : speeds)
      speed = std::exp(std::uniform_real_distribution<double>(-3.0, 3.0)(random));
    return speeds;
  }

  // A seed that all ranks have.
  static unsigned common_seed() {
    std::int64_t seed = std::random_device()();
    kolo::broadcast(seed, 0);
    return static_cast<unsigned>(seed);
  }

  kolo::Session session_;
};

TEST_F(BatchSharesTest, AreEqualAtFirst) {
  const BatchShares shares({.global_batch = 10});
  EXPECT_EQ(total_of(shares.all()), 10);
  EXPECT_LE(shares.all().front() - shares.all().back(), 1);
  EXPECT_EQ(shares.own(), shares.all()[static_cast<std::size_t>(kolo::rank())]);
  EXPECT_DOUBLE_EQ(shares.weight(), static_cast<double>(shares.own() * kolo::size()) / 10.0);
}

TEST_F(BatchSharesTest, ARankOfHalfTheSpeedGetsHalfAsMany) {
  const std::int64_t unit = 100;
  BatchShares shares({.global_batch = unit * (2 * kolo::size() - 1)});
  EXPECT_EQ(agree_at(shares, kolo::rank() == last() ? 50.0 : 100.0), kolo::size() > 1);
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const bool is_alone = kolo::size() == 1;
    EXPECT_EQ(shares.all()[static_cast<std::size_t>(rank)],
              rank == last() || is_alone ? unit : 2 * unit);
  }
}

TEST_F(BatchSharesTest, FollowRandomSpeedsFromAnyStart) {
  const unsigned seed = common_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    const std::int64_t batch = std::uniform_int_distribution<std::int64_t>(64, 20'000)(random);
    BatchShares shares({.global_batch = batch, .max_change = 1.5});
    for (int change = 0; change < 3; ++change) {
      const std::vector<double> speeds = random_speeds(random);
      for (int step = 0; step < 40; ++step) {
        agree_at(shares, speeds[static_cast<std::size_t>(kolo::rank())]);
        ASSERT_EQ(total_of(shares.all()), batch);
        expect_equal_on_all_ranks(shares.all());
      }
      // No shares have a shorter time than one in which all ranks end together. Whole examples and
      // the smallest gain allow a little more.
      const double together =
          static_cast<double>(batch) / std::accumulate(speeds.begin(), speeds.end(), 0.0);
      const double slowest = *std::min_element(speeds.begin(), speeds.end());
      EXPECT_LE(step_time(shares.all(), speeds), together / (1.0 - 0.05) + 1.0 / slowest)
          << "round " << round << ", change " << change;
    }
  }
}

// Each step has a cost that does not depend on the number of examples.
TEST_F(BatchSharesTest, RanksNeedEquallyLongAlsoWithConstantCosts) {
  BatchShares shares({.global_batch = 10'000, .min_gain = 0.0});
  const auto seconds = [&](int rank) {
    const auto share = static_cast<double>(shares.all()[static_cast<std::size_t>(rank)]);
    return 1e-3 + share * (rank == last() ? 2e-5 : 1e-5);
  };
  for (int step = 0; step < 30; ++step) {
    shares.add(shares.own(), seconds(kolo::rank()));
    shares.agree();
  }
  for (int rank = 0; rank < kolo::size(); ++rank)
    EXPECT_NEAR(seconds(rank), seconds(0), 1e-4) << "rank " << rank;
}

// Returns how often shares change although the ranks' speeds only vary by up to 2 % around 100.
int changes_with_noise(double min_gain) {
  BatchShares shares({.global_batch = 4096, .min_gain = min_gain});
  std::mt19937 random(static_cast<unsigned>(kolo::rank()));
  std::uniform_real_distribution<double> noise(0.98, 1.02);
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    shares.add(shares.own(), static_cast<double>(shares.own()) / 100.0 * noise(random));
    changes += shares.agree() ? 1 : 0;
  }
  return changes;
}

TEST_F(BatchSharesTest, DoNotFollowNoise) {
  EXPECT_EQ(changes_with_noise(0.05), 0);
  const int without_limit = changes_with_noise(0.0);
  EXPECT_EQ(without_limit > 0, kolo::size() > 1);
}

TEST_F(BatchSharesTest, OneAbsurdTimeChangesLittle) {
  if (kolo::size() == 1) return;
  BatchShares shares({.global_batch = std::int64_t{1000} * kolo::size(), .max_change = 1.25});
  EXPECT_TRUE(agree_at(shares, kolo::rank() == 0 ? 1e-12 : 1e9));
  EXPECT_EQ(shares.all()[0], 800);
  for (int i = 0; i < 10; ++i) agree_at(shares, 100.0);
  EXPECT_THAT(shares.all(), Each(testing::AllOf(testing::Ge(950), testing::Le(1050))));
}

TEST_F(BatchSharesTest, KeepTheirBounds) {
  if (kolo::size() == 1) return;
  const auto share_of_slow_rank = [](const BatchSharesOptions& options) {
    BatchShares shares(options);
    for (int i = 0; i < 5; ++i) agree_at(shares, kolo::rank() == 0 ? 1.0 : 100.0);
    return shares.all()[0];
  };
  const std::int64_t batch = std::int64_t{100} * kolo::size();
  EXPECT_EQ(share_of_slow_rank({.global_batch = batch, .min_share = 60}), 60);
  EXPECT_EQ(share_of_slow_rank({.global_batch = batch, .max_share = 110}),
            batch - std::int64_t{110} * last());
}

TEST_F(BatchSharesTest, StayUntilAllRanksHaveATime) {
  BatchShares shares({.global_batch = std::int64_t{100} * kolo::size()});
  const Numbers before = shares.all();
  // Rank 0 is slow, but says so only later. The records of the others must not be lost.
  if (kolo::rank() != 0) shares.add(100, 1.0);
  if (kolo::rank() == 0) shares.add(0, 5.0);
  EXPECT_FALSE(shares.agree());
  EXPECT_EQ(shares.all(), before);
  if (kolo::rank() == 0) shares.add(100, 2.0);
  EXPECT_EQ(shares.agree(), kolo::size() > 1);
  // All records were used.
  EXPECT_FALSE(shares.agree());
}

TEST_F(BatchSharesTest, TimeRecordsWorkThatSucceeds) {
  if (kolo::size() == 1) return;
  BatchShares shares({.global_batch = std::int64_t{100} * kolo::size()});
  if (kolo::rank() != 0) shares.add(100, 1e9);
  const auto fail = [&] { shares.time(100, []() -> int { throw std::runtime_error("no data"); }); };
  if (kolo::rank() == 0) {
    EXPECT_THROW(fail(), std::runtime_error);
  }
  EXPECT_FALSE(shares.agree());
  const auto work = [begin = std::chrono::steady_clock::now()] {
    while (std::chrono::steady_clock::now() == begin) {
    }
    return 7;
  };
  if (kolo::rank() == 0) {
    EXPECT_EQ(shares.time(100, work), 7);
    shares.time(100, [&] { work(); });
  }
  EXPECT_TRUE(shares.agree());
  EXPECT_GT(shares.all()[0], 100);
}

TEST_F(BatchSharesTest, DifferentOptionsThrowOnAllRanks) {
  if (kolo::size() == 1) return;
  const bool differs = kolo::rank() == last();
  const auto expect_mismatch = [&](const BatchSharesOptions& options, const std::string& message) {
    BatchShares shares(options);
    try {
      shares.agree();
      ADD_FAILURE() << "no exception";
    } catch (const kolo::Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_THAT(error.ranks(), ElementsAre(last()));
    }
  };
  const std::string rank = " on rank " + std::to_string(last());
  expect_mismatch({.global_batch = differs ? 65 : 64}, "64 on rank 0, 65" + rank);
  expect_mismatch({.global_batch = 64, .min_share = differs ? 2 : 1}, "min_share");
  expect_mismatch({.global_batch = 64, .max_share = differs ? 64 : 0}, "max_share");
  expect_mismatch({.global_batch = 64, .max_change = differs ? 3.0 : 2.0}, "max_change");
  expect_mismatch({.global_batch = 64, .min_gain = differs ? 0.25 : 0.05}, "0.25" + rank);
  BatchShares shares({.global_batch = 64});
  EXPECT_FALSE(agree_at(shares, 1.0));
}

TEST_F(BatchSharesTest, DifferentSharesThrowOnAllRanks) {
  if (kolo::size() == 1) return;
  BatchShares shares({.global_batch = std::int64_t{100} * kolo::size()});
  EXPECT_TRUE(agree_at(shares, kolo::rank() == 0 ? 1.0 : 2.0));
  if (kolo::rank() == 0) shares.rejoin();
  EXPECT_THROW(shares.agree(), kolo::Mismatch);
  shares.rejoin();
  EXPECT_FALSE(shares.agree());
}

TEST_F(BatchSharesTest, RejoinSharesEquallyAndForgets) {
  BatchShares shares({.global_batch = std::int64_t{100} * kolo::size()});
  agree_at(shares, kolo::rank() == 0 ? 1.0 : 2.0);
  shares.add(100, kolo::rank() == 0 ? 2.0 : 1.0);
  shares.rejoin();
  EXPECT_THAT(shares.all(), Each(100));
  EXPECT_FALSE(shares.agree());
  kolo::elastic::State state;
  state.add("shares", shares);
}

TEST_F(BatchSharesTest, AgreeAfterAJoinThrows) {
  if (kolo::size() == 1) return;
  BatchShares shares({.global_batch = 64});
  if (kolo::rank() != last()) {
    try {
      shares.agree();
      ADD_FAILURE() << "no exception";
    } catch (const kolo::Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("joined"));
      EXPECT_THAT(error.ranks(), ElementsAre(last()));
    }
  }
  kolo::join();
  EXPECT_FALSE(shares.agree());
}

TEST_F(BatchSharesTest, RanksOfASetShareItsBatch) {
  const kolo::ProcessSet set = kolo::add_process_set({last()});
  if (kolo::rank() == last()) {
    BatchShares shares({.global_batch = 10, .process_set = set});
    EXPECT_THAT(shares.all(), ElementsAre(10));
    EXPECT_FALSE(agree_at(shares, 1.0));
    EXPECT_THROW(shares.rejoin(), kolo::InvalidArgument);
  } else {
    EXPECT_THROW(BatchShares({.global_batch = 10, .process_set = set}), kolo::InvalidArgument);
  }
}

TEST_F(BatchSharesTest, RefusesWhatMakesNoSense) {
  const auto refused = [](const BatchSharesOptions& options) {
    EXPECT_THROW(BatchShares{options}, kolo::InvalidArgument);
  };
  refused({});
  refused({.global_batch = kolo::size() - 1});
  refused({.global_batch = (std::int64_t{1} << 30) + 1});
  refused({.global_batch = std::int64_t{3} * kolo::size() - 1, .min_share = 3});
  refused({.global_batch = 100, .min_share = 0});
  refused({.global_batch = std::int64_t{4} * kolo::size() + 1, .max_share = 4});
  refused({.global_batch = 100, .max_share = -1});
  refused({.global_batch = 100, .max_change = 1.0});
  refused({.global_batch = 100, .max_change = std::numeric_limits<double>::quiet_NaN()});
  refused({.global_batch = 100, .min_gain = -0.1});
  refused({.global_batch = 100, .min_gain = 1.0});
  BatchShares shares(
      {.global_batch = std::int64_t{3} * kolo::size(), .min_share = 3, .max_share = 3});
  EXPECT_THROW(shares.add(-1, 1.0), kolo::InvalidArgument);
  EXPECT_THROW(shares.add(1, -1.0), kolo::InvalidArgument);
  EXPECT_THROW(shares.add(1, std::numeric_limits<double>::quiet_NaN()), kolo::InvalidArgument);
  EXPECT_THROW(shares.add(1, std::numeric_limits<double>::infinity()), kolo::InvalidArgument);
  EXPECT_FALSE(shares.agree());
}

}  // namespace
