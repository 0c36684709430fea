// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/reproducible.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

using kolo::NamedTensor;
using kolo::ReproducibleGradients;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int shards = 12;
constexpr std::size_t elements = 1003;

// Of very different magnitudes, so that sums in other orders would have other bits.
template <typename T>
std::vector<T> gradient_of(int shard) {
  std::mt19937 random(static_cast<std::uint32_t>(shard));
  std::vector<T> gradient(elements);
  for (T& element : gradient) {
    const double magnitude = std::exp(std::uniform_real_distribution<double>(-30.0, 10.0)(random));
    element = static_cast<T>((random() % 2 == 0 ? 1 : -1) * magnitude);
  }
  return gradient;
}

// The mean of exact sums in long double, whose 64 bits hold what the sum of f32 rounds to.
std::vector<float> expected_mean() {
  std::vector<float> mean(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    long double sum = 0;
    for (int shard = 0; shard < shards; ++shard)
      sum += static_cast<long double>(gradient_of<float>(shard)[i]);
    mean[i] = static_cast<float>(static_cast<double>(sum) / shards);
  }
  return mean;
}

template <typename T>
std::vector<T> reduce(ReproducibleGradients& reproducible) {
  std::vector<T> gradient(elements);
  reproducible.reduce(
      [&](int shard) { std::ranges::copy(gradient_of<T>(shard), gradient.begin()); },
      std::vector<NamedTensor>{{"w", gradient}});
  return gradient;
}

class ReproducibleTest : public testing::Test {
 private:
  kolo::Session session_{};
};

TEST_F(ReproducibleTest, ShardsAreDividedAmongTheRanks) {
  const ReproducibleGradients reproducible({.shards = shards});
  std::vector<std::int64_t> counts(shards);
  for (const int shard : reproducible.own_shards()) ++counts[static_cast<std::size_t>(shard)];
  kolo::allreduce(counts, {.op = kolo::ReduceOp::sum});
  EXPECT_EQ(counts, std::vector<std::int64_t>(shards, 1));
}

TEST_F(ReproducibleTest, TheMeanIsRoundedOnce) {
  ReproducibleGradients reproducible({.shards = shards});
  for (int step = 0; step < 2; ++step) {
    const std::vector<float> mean = reduce<float>(reproducible);
    const std::vector<float> expected = expected_mean();
    std::size_t differ = 0;
    for (std::size_t i = 0; i < elements; ++i)
      if (mean[i] != expected[i]) ++differ;
    EXPECT_LE(differ, 1U);  // long double rounds, too
  }
}

// Sets of one rank compute all shards themselves.
TEST_F(ReproducibleTest, EveryNumberOfRanksHasTheSameBits) {
  ReproducibleGradients reproducible({.shards = shards});
  const std::vector<float> mean = reduce<float>(reproducible);
  const std::vector<double> mean_f64 = reduce<double>(reproducible);
  for (int last = 0; last < kolo::size(); ++last) {
    std::vector<int> members;
    for (int rank = 0; rank <= last; ++rank) members.push_back(rank);
    const kolo::ProcessSet set = kolo::add_process_set(members);
    if (set.rank() >= 0) {
      ReproducibleGradients of_set({.shards = shards, .process_set = set});
      EXPECT_EQ(reduce<float>(of_set), mean);
      EXPECT_EQ(reduce<double>(of_set), mean_f64);
    }
    kolo::barrier();
  }
}

TEST_F(ReproducibleTest, SomeRanksMayHaveNoShard) {
  ReproducibleGradients reproducible({.shards = 1});
  for (int step = 0; step < 2; ++step)
    EXPECT_EQ(reduce<float>(reproducible), gradient_of<float>(0)) << "step " << step;
}

TEST_F(ReproducibleTest, SeveralGradientsOfSeveralTypes) {
  ReproducibleGradients reproducible({.shards = 4});
  std::vector<double> a(2);
  std::vector<float> b(3);
  std::vector<std::uint16_t> c(1);  // bf16
  double scalar = 0;
  reproducible.reduce(
      [&](int shard) {
        a = {1.0 + shard, 0x1p29};
        b = {0.5F, 0x1p-70F, -3.0F * static_cast<float>(shard)};
        c[0] = 0x3f80;  // 1
        scalar = shard == 3 ? 8.0 : 0.0;
      },
      std::vector<NamedTensor>{{"a", a},
                               {"b", b},
                               {"c", {c.data(), kolo::Shape{1}, kolo::DType::bf16}},
                               {"scalar", scalar}});
  EXPECT_THAT(a, ElementsAre(2.5, 0x1p29));
  EXPECT_THAT(b, ElementsAre(0.5F, 0x1p-70F, -4.5F));
  EXPECT_EQ(c[0], 0x3f80);
  EXPECT_EQ(scalar, 2.0);
}

TEST_F(ReproducibleTest, WhatCannotBeAddedIsNan) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), 0x1p30}) {
    ReproducibleGradients reproducible({.shards = 3});
    std::vector<double> hit(2);
    std::vector<double> other(1);
    reproducible.reduce(
        [&](int shard) {
          hit = {1.0, shard == 2 ? bad : 1.0};
          other = {1.0};
        },
        std::vector<NamedTensor>{{"hit", hit}, {"other", other}});
    EXPECT_TRUE(std::isnan(hit[0]) && std::isnan(hit[1]));
    EXPECT_EQ(other[0], 1.0);
  }
}

TEST_F(ReproducibleTest, AFailureIsKnownEverywhere) {
  if (kolo::size() == 1) GTEST_SKIP() << "needs two ranks";
  ReproducibleGradients reproducible({.shards = shards});
  std::vector<float> gradient(1);
  const auto reduce_all = [&](int failing) {
    reproducible.reduce(
        [&](int shard) {
          if (kolo::rank() == failing) throw std::runtime_error("no data");
          gradient[0] = static_cast<float>(shard);
        },
        std::vector<NamedTensor>{{"w", gradient}});
  };
  try {
    reduce_all(1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const kolo::BackwardFailed& error) {
    EXPECT_NE(kolo::rank(), 1);
    EXPECT_THAT(error.ranks(), ElementsAre(1));
    EXPECT_THAT(error.what(), HasSubstr("a shard threw on rank 1"));
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(kolo::rank(), 1);
    EXPECT_STREQ(error.what(), "no data");
  }
  reduce_all(-1);
  EXPECT_EQ(gradient[0], 5.5F);
}

TEST_F(ReproducibleTest, UnequalNumbersOfShardsAreRefused) {
  if (kolo::size() == 1) GTEST_SKIP() << "needs two ranks";
  ReproducibleGradients reproducible({.shards = kolo::rank() == 0 ? 4 : 3});
  EXPECT_THROW(reduce<float>(reproducible), kolo::Mismatch);
}

TEST_F(ReproducibleTest, OnceARankHasJoinedAllOthersAreRefused) {
  if (kolo::size() == 1) GTEST_SKIP() << "needs two ranks";
  ReproducibleGradients reproducible({.shards = 4});
  if (kolo::rank() != kolo::size() - 1) {
    try {
      (void)reduce<float>(reproducible);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const kolo::Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("or some ranks have joined"));
    }
  }
  kolo::join();
  EXPECT_NO_THROW((void)reduce<float>(reproducible));
}

TEST_F(ReproducibleTest, ARankThatLeavesDoesNotHideAnException) {
  if (kolo::size() == 1) GTEST_SKIP() << "needs two ranks";
  ReproducibleGradients reproducible({.shards = 4});
  std::vector<float> gradient(1);
  const auto reduce_all = [&] {
    reproducible.reduce(
        [](int /*shard*/) {
          if (kolo::rank() == 0) throw std::runtime_error("no data");
        },
        std::vector<NamedTensor>{{"w", gradient}});
  };
  if (kolo::rank() == kolo::size() - 1) return;  // the session ends
  if (kolo::rank() != 0) {
    EXPECT_THROW(reduce_all(), kolo::PeerLeft);
    return;
  }
  try {
    reduce_all();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no data");
  }
}

TEST_F(ReproducibleTest, ArgumentsAreChecked) {
  for (const int wrong : {0, -1, 1025})
    EXPECT_THROW(ReproducibleGradients({.shards = wrong}), kolo::InvalidArgument);
  ReproducibleGradients reproducible({.shards = 2});
  std::vector<std::int32_t> integers(2);
  try {
    reproducible.reduce([](int /*shard*/) {}, std::vector<NamedTensor>{{"n", integers}});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const kolo::InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'n' must be a floating-point tensor in host memory"));
  }
}

}  // namespace
