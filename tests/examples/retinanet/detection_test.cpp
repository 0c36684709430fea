// SPDX-License-Identifier: Apache-2.0
#include "detection.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "moved_box.hpp"

namespace {

using namespace retinanet;

std::vector<double> scores_of(const std::vector<Detection>& detections) {
  std::vector<double> scores;
  for (const Detection& detection : detections) scores.push_back(detection.score);
  return scores;
}

TEST(WithoutDuplicates, KeepsTheBetterOfTwo) {
  // 0 overlaps 2 by 8/12, 2 overlaps 5 by 7/13, 0 overlaps 5 by a third: with 2 gone, 5 stays.
  const std::vector<Detection> found{{.box = moved(5), .score = 0.2},
                                     {.box = moved(0), .score = 0.9},
                                     {.box = moved(2), .score = 0.5}};
  EXPECT_EQ(scores_of(without_duplicates(found, 0.5)), (std::vector<double>{0.9, 0.2}));
  EXPECT_EQ(scores_of(without_duplicates(found, 0.6)), (std::vector<double>{0.9, 0.2}));
  EXPECT_EQ(scores_of(without_duplicates(found, 0.7)), (std::vector<double>{0.9, 0.5, 0.2}));
  EXPECT_EQ(scores_of(without_duplicates(found, 0.3)), (std::vector<double>{0.9}));
}

TEST(WithoutDuplicates, AllowsTheOverlapItself) {
  const std::vector<Detection> found{{.box = moved(0), .score = 0.9},
                                     {.box = moved(5), .score = 0.2}};
  EXPECT_EQ(without_duplicates(found, 5.0 / 15).size(), 2U);
}

TEST(WithoutDuplicates, LeavesOtherCategoriesAlone) {
  const std::vector<Detection> found{{.category = 1, .box = moved(0), .score = 0.9},
                                     {.category = 2, .box = moved(0), .score = 0.8}};
  EXPECT_EQ(without_duplicates(found, 0.5).size(), 2U);
  EXPECT_TRUE(without_duplicates({}, 0.5).empty());
}

class Detector : public testing::Test {
 protected:
  static constexpr float nothing = -std::numeric_limits<float>::infinity();

  [[nodiscard]] std::vector<Detection> detect_at(const Fit& fit,
                                                 const DetectorOptions& options = {}) const {
    return detect(/*picture=*/5, anchors_, logits_, offsets_, fit, options);
  }

  std::vector<Box> anchors_{moved(0), moved(20), moved(40)};
  std::vector<float> logits_ = std::vector<float>(6, nothing);  // for two categories
  std::vector<float> offsets_ = std::vector<float>(12, 0.0F);
};

TEST_F(Detector, GivesBoxesInThePicturesOwnPixels) {
  logits_[2 * 1 + 1] = std::log(3.0F);  // a probability of 3/4
  offsets_[4 * 1] = 0.5F;               // half an anchor to the right
  const std::vector<Detection> found = detect_at({.scale = 0.5, .width = 100, .height = 16});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].picture, 5);
  EXPECT_EQ(found[0].category, 1);
  EXPECT_NEAR(found[0].score, 0.75, 1e-7);
  EXPECT_EQ(found[0].box.left, 50);
  EXPECT_EQ(found[0].box.right, 70);
  EXPECT_EQ(found[0].box.top, 0);
  EXPECT_EQ(found[0].box.bottom, 16);  // the picture ends here
}

TEST_F(Detector, LeavesOutWhatIsOutsideThePicture) {
  logits_[2 * 2] = 3.0F;
  EXPECT_TRUE(detect_at({.scale = 1, .width = 40, .height = 40}).empty());
  EXPECT_EQ(detect_at({.scale = 1, .width = 41, .height = 40}).size(), 1U);
}

TEST_F(Detector, LeavesOutLowScores) {
  logits_[0] = std::log(0.06F / 0.94F);
  logits_[2] = std::log(0.04F / 0.96F);
  EXPECT_EQ(detect_at({.scale = 1, .width = 99, .height = 99}).size(), 1U);
  EXPECT_EQ(detect_at({.scale = 1, .width = 99, .height = 99}, {.min_score = 0.03}).size(), 2U);
}

TEST_F(Detector, GivesTheBestFirstAndNotTooMany) {
  logits_ = {0.0F, 1.0F, 3.0F, nothing, 2.0F, nothing};
  const Fit whole{.scale = 1, .width = 99, .height = 99};
  const std::vector<Detection> all = detect_at(whole);
  ASSERT_EQ(all.size(), 4U);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GT(all[i - 1].score, all[i].score);
  const std::vector<Detection> two = detect_at(whole, {.max_detections = 2});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].box.left, 20);
  EXPECT_EQ(two[1].box.left, 40);
  EXPECT_EQ(detect_at(whole, {.candidates = 3}).size(), 3U);
}

}  // namespace
