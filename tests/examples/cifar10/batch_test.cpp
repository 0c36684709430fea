// SPDX-License-Identifier: Apache-2.0
#include "batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace cifar10;
using testing::Each;
using testing::ElementsAre;

// All bytes of image i are i, and so is its label.
Dataset plain_images() {
  Dataset dataset;
  for (std::uint8_t i = 0; i < 10; ++i) {
    dataset.labels.push_back(i);
    dataset.pixels.insert(dataset.pixels.end(), image_bytes, i);
  }
  return dataset;
}

TEST(Batch, HoldsTheImagesAskedForInTheirOrder) {
  const Dataset dataset = plain_images();
  const std::vector<std::int64_t> indices{7, 2, 2};
  Random random = random_stream({3});
  for (Random* augmentation : {static_cast<Random*>(nullptr), &random}) {
    Batch batch;
    batch.fill(dataset, indices, augmentation);
    EXPECT_THAT(batch.labels, ElementsAre(7, 2, 2));
    ASSERT_EQ(batch.pixels.size(), 3 * image_bytes);
    EXPECT_THAT(std::span(batch.pixels).first(image_bytes), Each(7.0F * (1.0F / 255.0F)));
    EXPECT_THAT(std::span(batch.pixels).last(2 * image_bytes), Each(2.0F * (1.0F / 255.0F)));
  }
}

TEST(Batch, IsUsedAgainForASmallerOne) {
  const Dataset dataset = plain_images();
  Batch batch;
  batch.fill(dataset, std::vector<std::int64_t>{1, 2, 3});
  const float* memory = batch.pixels.data();
  batch.fill(dataset, std::vector<std::int64_t>{9});
  EXPECT_THAT(batch.labels, ElementsAre(9));
  EXPECT_EQ(batch.pixels.size(), image_bytes);
  EXPECT_EQ(batch.pixels.data(), memory);
}

TEST(BatchOf, CutsTheIndicesIntoBatches) {
  const std::vector<std::int64_t> indices{5, 6, 7, 8, 9};
  EXPECT_EQ(batch_count(indices.size(), 2), 3U);
  EXPECT_THAT(batch_of(indices, 0, 2), ElementsAre(5, 6));
  EXPECT_THAT(batch_of(indices, 1, 2), ElementsAre(7, 8));
  EXPECT_THAT(batch_of(indices, 2, 2), ElementsAre(9));
  EXPECT_EQ(batch_count(4, 2), 2U);
  EXPECT_EQ(batch_count(0, 2), 0U);
}

}  // namespace
