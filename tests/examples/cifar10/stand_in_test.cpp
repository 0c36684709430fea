// SPDX-License-Identifier: Apache-2.0
#include "stand_in.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

namespace {

using namespace cifar10;

TEST(StandIn, IsTheSameForTheSameSeed) {
  const Data one = make_stand_in(100, 42);
  const Data same = make_stand_in(100, 42);
  EXPECT_EQ(one.train.pixels, same.train.pixels);
  EXPECT_EQ(one.train.labels, same.train.labels);
  EXPECT_EQ(one.test.pixels, same.test.pixels);
  EXPECT_NE(one.train.pixels, make_stand_in(100, 43).train.pixels);
}

TEST(StandIn, HasAsManyImagesAsAskedAndEachClassAsOften) {
  const Data data = make_stand_in(500, 1);
  EXPECT_EQ(data.train.size(), 500U);
  EXPECT_EQ(data.train.pixels.size(), 500 * image_bytes);
  EXPECT_EQ(data.test.size(), 100U);
  for (std::uint8_t label = 0; label < classes; ++label) {
    EXPECT_EQ(std::count(data.train.labels.begin(), data.train.labels.end(), label), 50);
    EXPECT_EQ(std::count(data.test.labels.begin(), data.test.labels.end(), label), 10);
  }
}

TEST(StandIn, TestsOnImagesItDoesNotTrainOn) {
  const Data data = make_stand_in(50, 1);
  for (std::size_t i = 0; i < data.test.size(); ++i) {
    for (std::size_t j = 0; j < data.train.size(); ++j) {
      ASSERT_FALSE(std::ranges::equal(data.test.image(i), data.train.image(j)));
    }
  }
}

}  // namespace
