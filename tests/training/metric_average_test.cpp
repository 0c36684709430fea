// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "kolo/kolo.hpp"

namespace {

using kolo::MetricAverage;

class Metrics : public testing::Test {
 protected:
  kolo::Session session_;
  const int rank_ = kolo::rank();
  const int size_ = kolo::size();
  const bool last_ = rank_ == size_ - 1;
};

TEST_F(Metrics, CountEachValueByItsExamples) {
  MetricAverage metrics({"loss", "accuracy"});
  // Rank r sees r + 1 examples of value r, in two batches, and one of value 1 for the other metric.
  metrics.add("loss", rank_, 1);
  metrics.add("loss", rank_, rank_);
  metrics.add("accuracy", 1.0);
  const std::map<std::string, double> means = metrics.over_all_ranks();
  EXPECT_EQ(means.size(), 2U);
  EXPECT_NEAR(means.at("loss"), 2.0 * (size_ - 1) / 3.0, 1e-12);
  EXPECT_EQ(means.at("accuracy"), 1.0);
  EXPECT_DOUBLE_EQ(metrics.on_this_rank("loss"), rank_);
}

TEST_F(Metrics, AreWhatOneProcessWouldFindThatSeesAll) {
  // Examples 0 .. 99 with values i^2, in batches of unequal sizes on unequal ranks.
  MetricAverage metrics({"m"});
  double sum = 0.0;
  for (int i = 0; i < 100; ++i) {
    sum += i * i;
    if (i * i % size_ == rank_) metrics.add("m", i * i);
  }
  EXPECT_DOUBLE_EQ(metrics.over_all_ranks().at("m"), sum / 100.0);
}

TEST_F(Metrics, ARankThatSawNothingTakesPart) {
  MetricAverage metrics({"loss"});
  if (!last_) metrics.add("loss", 3.0, 7.0);
  metrics.add("loss", std::numeric_limits<double>::quiet_NaN(), 0.0);
  const double mean = metrics.over_all_ranks().at("loss");
  if (size_ == 1) {
    EXPECT_TRUE(std::isnan(mean));
  } else {
    EXPECT_EQ(mean, 3.0);
  }
  EXPECT_EQ(std::isnan(metrics.on_this_rank("loss")), last_);
}

TEST_F(Metrics, OfNothingAreNoNumbers) {
  MetricAverage metrics({"loss", "accuracy"});
  metrics.add("accuracy", 0.5);
  const auto means = metrics.over_all_ranks();
  EXPECT_TRUE(std::isnan(means.at("loss")));
  EXPECT_EQ(means.at("accuracy"), 0.5);
  EXPECT_TRUE(MetricAverage({}).over_all_ranks().empty());
}

TEST_F(Metrics, AreTheSameBitsOnEveryRank) {
  MetricAverage metrics({"m"});
  metrics.add("m", 0.1 * (rank_ + 1) / 3.0, 1.0 / (rank_ + 3));
  const double mean = metrics.over_all_ranks().at("m");
  auto bits = std::bit_cast<std::uint64_t>(mean);
  kolo::broadcast(bits, 0);
  EXPECT_EQ(bits, std::bit_cast<std::uint64_t>(mean));
}

TEST_F(Metrics, OfDifferentNamesAreAMismatchOnEveryRank) {
  if (size_ == 1) return;
  MetricAverage metrics({last_ ? "loss" : "accuracy"});
  metrics.add(last_ ? "loss" : "accuracy", 1.0);
  EXPECT_THROW((void)metrics.over_all_ranks(), kolo::Mismatch);
  EXPECT_THROW((void)MetricAverage(last_ ? std::vector<std::string>{"a", "b"}
                                         : std::vector<std::string>{"a"})
                   .over_all_ranks(),
               kolo::Mismatch);
  EXPECT_DOUBLE_EQ(kolo::average(2.0), 2.0);
}

TEST_F(Metrics, AreOverTheRanksThatHaveNotJoined) {
  // One rank after the other joins, rank 0 at last.
  for (int joined = 0; joined < size_ - rank_; ++joined) {
    MetricAverage metrics({"loss", "accuracy"});
    metrics.add("loss", rank_);
    const auto means = metrics.over_all_ranks();
    EXPECT_DOUBLE_EQ(means.at("loss"), (size_ - joined - 1) / 2.0);
    EXPECT_TRUE(std::isnan(means.at("accuracy")));
    EXPECT_DOUBLE_EQ(kolo::average(rank_), (size_ - joined - 1) / 2.0);
    // Different names are noticed among those that are left, not otherwise.
    if (joined == 1 && size_ > 2) {
      EXPECT_THROW((void)MetricAverage({rank_ == 0 ? "a" : "b"}).over_all_ranks(), kolo::Mismatch);
    }
  }
  (void)kolo::join();
}

TEST_F(Metrics, AreForgottenByReset) {
  MetricAverage metrics({"m"});
  metrics.add("m", 5.0);
  metrics.reset();
  metrics.add("m", 1.0);
  EXPECT_EQ(metrics.over_all_ranks().at("m"), 1.0);
}

TEST_F(Metrics, GoOnFromASavedState) {
  MetricAverage whole({"a", "b"});
  whole.add("a", 1.0 / 3.0, 7.0);
  MetricAverage resumed({"a", "b"});
  resumed.add("b", 99.0);
  resumed.load_state(whole.state());
  for (MetricAverage* metrics : {&whole, &resumed}) metrics->add("a", 0.1, rank_ + 1.0);
  EXPECT_EQ(whole.over_all_ranks().at("a"), resumed.over_all_ranks().at("a"));
  EXPECT_TRUE(std::isnan(resumed.on_this_rank("b")));

  MetricAverage other({"a", "c"});
  EXPECT_THROW(other.load_state(whole.state()), kolo::InvalidArgument);
  EXPECT_THROW(whole.load_state("kolo.metrics.1"), kolo::InvalidArgument);
}

TEST_F(Metrics, RefuseWhatMakesNoSense) {
  EXPECT_THROW(MetricAverage({"a", "b", "a"}), kolo::InvalidArgument);
  MetricAverage metrics({"a"});
  EXPECT_THROW(metrics.add("b", 1.0), kolo::InvalidArgument);
  EXPECT_THROW(metrics.add("a", 1.0, -1.0), kolo::InvalidArgument);
  EXPECT_THROW((void)metrics.on_this_rank("b"), kolo::InvalidArgument);
  metrics.add("a", 2.0);
  EXPECT_EQ(metrics.over_all_ranks().at("a"), 2.0);
}

}  // namespace
