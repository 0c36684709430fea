// SPDX-License-Identifier: Apache-2.0
#include "average_precision.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

namespace {

using namespace retinanet;

// A square of `side` pixels moved to the right by a part of its side overlaps the unmoved one by
// (1 - x) / (1 + x).
Box square(double side, double part = 0.0) { return {part * side, 0, (1 + part) * side, side}; }

Truth truth(std::int64_t picture, const Box& box, std::int64_t category = 0) {
  return {.picture = picture, .category = category, .box = box, .area = box.area()};
}

Detection found(std::int64_t picture, const Box& box, double score, std::int64_t category = 0) {
  return {.picture = picture, .category = category, .box = box, .score = score};
}

// The number of the 101 recalls that lie at or below n / m.
double recalls_up_to(int n, int m) { return std::floor(100.0 * n / m + 1e-9) + 1; }

TEST(AveragePrecision, IsOneIfAllIsFoundExactly) {
  std::vector<Truth> truths;
  std::vector<Detection> detections;
  for (int picture = 0; picture < 4; ++picture) {
    for (int category = 0; category < 3; ++category) {
      const Box box = square(10.0 * (1 + picture) * (1 + category));
      truths.push_back(truth(picture, box, category));
      detections.push_back(found(picture, box, 0.1 + 0.2 * category, category));
    }
  }
  const AveragePrecision precision = average_precision(truths, detections);
  for (const double value : {precision.all, precision.at_50, precision.at_75, precision.small,
                             precision.medium, precision.large}) {
    EXPECT_DOUBLE_EQ(value, 1.0);
  }
}

TEST(AveragePrecision, IsZeroIfNothingIsFoundAndNoNumberIfNothingIsThere) {
  EXPECT_EQ(average_precision({truth(0, square(10))}, {}).all, 0.0);
  EXPECT_TRUE(std::isnan(average_precision({}, {found(0, square(10), 0.5)}).all));
  const AveragePrecision small = average_precision({truth(0, square(10))}, {});
  EXPECT_EQ(small.small, 0.0);
  EXPECT_TRUE(std::isnan(small.medium));
  EXPECT_TRUE(std::isnan(small.large));
}

// Overlap of 2/3: found at 0.5, 0.55, 0.6 and 0.65.
TEST(AveragePrecision, TakesTheMeanOverTenOverlaps) {
  const AveragePrecision precision =
      average_precision({truth(0, square(100))}, {found(0, square(100, 0.2), 0.5)});
  EXPECT_DOUBLE_EQ(precision.at_50, 1.0);
  EXPECT_DOUBLE_EQ(precision.at_75, 0.0);
  EXPECT_DOUBLE_EQ(precision.all, 0.4);
}

// An overlap of a half is enough.
TEST(AveragePrecision, CountsTheOverlapItself) {
  const AveragePrecision precision =
      average_precision({truth(0, {0, 0, 10, 10})}, {found(0, {0, 0, 10, 5}, 0.5)});
  EXPECT_DOUBLE_EQ(precision.at_50, 1.0);
  EXPECT_DOUBLE_EQ(precision.all, 0.1);
}

// Two of three objects found, with a wrong one between: precision 1 to a recall of 1/3, 2/3 to 2/3.
TEST(AveragePrecision, AddsPrecisionsUpToTheRecall) {
  const std::vector<Truth> truths{truth(0, square(10)), truth(1, square(10)), truth(2, square(10))};
  const std::vector<Detection> detections{found(1, square(10), 0.9), found(2, square(10, 5), 0.8),
                                          found(0, square(10), 0.7)};
  const double one = recalls_up_to(1, 3), two = recalls_up_to(2, 3) - one;
  EXPECT_NEAR(average_precision(truths, detections).all, (one + two * 2 / 3) / 101, 1e-12);
}

// The order of the list is not that of the scores: wrong, right, right. The precision of 2/3 at the
// end counts for lower recalls too.
TEST(AveragePrecision, TakesTheBestPrecisionOfAnyHigherRecall) {
  const std::vector<Truth> truths{truth(0, square(10)), truth(1, square(10))};
  const std::vector<Detection> detections{found(1, square(10), 0.7), found(0, square(10), 0.8),
                                          found(0, square(10, 5), 0.9)};
  EXPECT_NEAR(average_precision(truths, detections).all, 2.0 / 3, 1e-12);
}

TEST(AveragePrecision, CountsASecondDetectionOfAnObjectAsWrong) {
  const std::vector<Truth> truths{truth(0, square(10)), truth(1, square(10))};
  const std::vector<Detection> detections{found(0, square(10), 0.9), found(0, square(10), 0.8),
                                          found(1, square(10), 0.7)};
  const double one = recalls_up_to(1, 2);
  EXPECT_NEAR(average_precision(truths, detections).all, (one + (101 - one) * 2 / 3) / 101, 1e-12);
}

TEST(AveragePrecision, CountsDetectionsInACrowdNeitherWay) {
  std::vector<Truth> truths{truth(0, square(10)), truth(0, {50, 0, 150, 100})};
  truths[1].crowd = true;
  const std::vector<Detection> detections{
      found(0, {60, 10, 70, 20}, 0.9), found(0, {80, 10, 90, 20}, 0.8), found(0, square(10), 0.7)};
  EXPECT_DOUBLE_EQ(average_precision(truths, detections).all, 1.0);
  // By less than half in the crowd, it is wrong.
  EXPECT_DOUBLE_EQ(
      average_precision(truths, {found(0, {44, 10, 54, 20}, 0.9), found(0, square(10), 0.7)}).all,
      0.5);
  // Only a crowd is there: nothing is to be found.
  truths.erase(truths.begin());
  EXPECT_TRUE(std::isnan(average_precision(truths, detections).all));
}

TEST(AveragePrecision, PrefersAnObjectToACrowdAroundIt) {
  std::vector<Truth> truths{truth(0, {0, 0, 100, 100}), truth(0, {10, 10, 20, 20})};
  truths[0].crowd = true;
  // Inside the crowd as a whole, and by 0.6 on the object.
  EXPECT_DOUBLE_EQ(average_precision(truths, {found(0, {10, 10, 20, 16}, 0.5)}).at_50, 1.0);
}

TEST(AveragePrecision, OfOneSizeIgnoresOtherSizes) {
  // The area counts, not the box: a large box with a thin object in it is small.
  std::vector<Truth> truths{truth(0, square(10)), truth(1, square(50)), truth(2, square(200)),
                            truth(3, square(50))};
  truths[3].area = 100;
  const std::vector<Detection> detections{found(2, square(200, 0.9), 0.95),  // wrong, and large
                                          found(0, square(10), 0.9), found(1, square(50), 0.8),
                                          found(2, square(200), 0.7)};
  const AveragePrecision precision = average_precision(truths, detections);
  EXPECT_DOUBLE_EQ(precision.small, recalls_up_to(1, 2) / 101);
  EXPECT_DOUBLE_EQ(precision.medium, 1.0);
  EXPECT_DOUBLE_EQ(precision.large, 0.5);
}

TEST(AveragePrecision, CountsTheBorderForBothSizes) {
  const AveragePrecision precision =
      average_precision({truth(0, square(32))}, {found(0, square(32), 0.5)});
  EXPECT_DOUBLE_EQ(precision.small, 1.0);
  EXPECT_DOUBLE_EQ(precision.medium, 1.0);
  EXPECT_TRUE(std::isnan(precision.large));
}

// The 101st detection of its image and category finds the object, but does not count.
TEST(AveragePrecision, LooksAtAHundredDetectionsOfAPicture) {
  std::vector<Detection> detections;
  for (int i = 0; i < 100; ++i) {
    detections.push_back(found(0, square(10, 5), 0.9));
    detections.push_back(found(0, square(10), 0.9, /*category=*/1));
    detections.push_back(found(1, square(10), 0.9));
  }
  detections.push_back(found(0, square(10), 0.1));
  EXPECT_EQ(average_precision({truth(0, square(10))}, detections).all, 0.0);
  detections.erase(detections.begin());
  EXPECT_GT(average_precision({truth(0, square(10))}, detections).all, 0.0);
}

// A category without objects does not count, however many detections it has.
TEST(AveragePrecision, TakesTheMeanOverCategoriesThatAreThere) {
  const std::vector<Truth> truths{truth(0, square(10), 0), truth(0, square(10), 1)};
  const std::vector<Detection> detections{found(0, square(10), 0.9, 0),
                                          found(0, square(10), 0.9, 2)};
  EXPECT_DOUBLE_EQ(average_precision(truths, detections).all, 0.5);
}

// 60 objects, 6 of them crowds, and 65 detections, some with equal scores. The expected values are
// those of pycocotools 2.0.11.
TEST(AveragePrecision, IsWhatCocosOwnProgramGives) {
  std::vector<Truth> truths;
  std::vector<Detection> detections;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k <= i % 5; ++k) {
      const double side = 8 * (1 + (3 * i + 5 * k) % 24);
      const double x = (37 * i + 53 * k) % 300, y = (29 * i + 31 * k) % 200;
      const int category = (i + k) % 3;
      truths.push_back(truth(i, {x, y, x + side, y + side}, category));
      truths.back().area = side * side * 3 / 4;
      truths.back().crowd = (5 * i + k) % 11 == 0;
      if ((i + 2 * k) % 4 != 3) {
        const double left = x + (i * k % 5 - 2) * side / 16;
        const double height = side * (14 + (i + k) % 5) / 16;
        const double score = (17 * i + 29 * k) % 50 / 50.0;
        detections.push_back(found(i, {left, y, left + side, y + height}, score, category));
      }
      if ((i + k) % 3 == 0) {
        const double score = (13 * i + 7 * k) % 40 / 50.0;
        detections.push_back(found(i, {x + side, y, x + 2 * side, y + side}, score, category));
      }
    }
  }
  const AveragePrecision precision = average_precision(truths, detections);
  EXPECT_NEAR(precision.all, 0.356430305118, 1e-11);
  EXPECT_NEAR(precision.at_50, 0.658195819582, 1e-11);
  EXPECT_NEAR(precision.at_75, 0.220565916482, 1e-11);
  EXPECT_NEAR(precision.small, 0.555390539054, 1e-11);
  EXPECT_NEAR(precision.medium, 0.324818481848, 1e-11);
  EXPECT_NEAR(precision.large, 0.345829797265, 1e-11);
}

}  // namespace
