// SPDX-License-Identifier: Apache-2.0
// Each image is evaluated by one rank, and the result equals that of one process.
#include "gathering.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <kolo/kolo.hpp>
#include <numeric>

#include "average_precision.hpp"

namespace {

using namespace retinanet;

TEST(Share, OfAllRanksIsEachPictureOnce) {
  const kolo::Session session;
  for (const std::size_t pictures : {0U, 1U, 2U, 3U, 7U, 24U, 25U}) {
    const std::vector<std::int64_t> mine = share_of(pictures);
    const auto ranks = static_cast<std::size_t>(kolo::size());
    EXPECT_GE(mine.size(), pictures / ranks);
    EXPECT_LE(mine.size(), (pictures + ranks - 1) / ranks);
    std::vector<std::int64_t> all = kolo::allgather(mine).values;
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> wanted(pictures);
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_EQ(all, wanted);
  }
}

// Image i has i mod 4 detections. Detection k is at (10 k, i) with a score of (7 i + k) mod 11
// hundredths.
std::vector<Detection> found_in(std::int64_t picture) {
  std::vector<Detection> all;
  for (std::int64_t k = 0; k < picture % 4; ++k) {
    const auto x = static_cast<double>(10 * k), y = static_cast<double>(picture);
    all.push_back({.picture = picture,
                   .category = k % 2,
                   .box = {x, y, x + 10, y + 10},
                   .score = static_cast<double>((7 * picture + k) % 11) / 100});
  }
  return all;
}

std::vector<Truth> truths_in(std::int64_t picture) {
  std::vector<Truth> all;
  for (std::int64_t k = 0; k < 2; ++k) {
    const auto x = static_cast<double>(10 * k) + 1, y = static_cast<double>(picture);
    all.push_back({.picture = picture, .category = k, .box = {x, y, x + 10, y + 10}, .area = 100});
  }
  return all;
}

TEST(Gathering, GivesWhatOneProcessWouldHaveFound) {
  const kolo::Session session;
  for (const std::size_t pictures : {1U, 2U, 23U}) {
    std::vector<Detection> mine, wanted;
    std::vector<Truth> truths;
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const std::int64_t picture : share_of(pictures)) append(mine, found_in(picture));
    for (std::size_t i = 0; i < pictures; ++i) {
      append(wanted, found_in(static_cast<std::int64_t>(i)));
      append(truths, truths_in(static_cast<std::int64_t>(i)));
    }
    const std::vector<Detection> all = gather(mine);
    ASSERT_EQ(all.size(), wanted.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].picture, wanted[i].picture);
      EXPECT_EQ(all[i].category, wanted[i].category);
      EXPECT_EQ(all[i].score, wanted[i].score);
      EXPECT_EQ(all[i].box.left, wanted[i].box.left);
      EXPECT_EQ(all[i].box.top, wanted[i].box.top);
      EXPECT_EQ(all[i].box.right, wanted[i].box.right);
      EXPECT_EQ(all[i].box.bottom, wanted[i].box.bottom);
    }
    EXPECT_EQ(average_precision(truths, all).all, average_precision(truths, wanted).all);
  }
}

}  // namespace
