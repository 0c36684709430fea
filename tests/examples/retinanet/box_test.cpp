// SPDX-License-Identifier: Apache-2.0
#include "box.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "anchors.hpp"

namespace {

using namespace retinanet;

TEST(Overlap, IsWhatIsSharedOverWhatIsCovered) {
  const Box box{0, 0, 4, 2};
  EXPECT_EQ(overlap(box, box), 1.0);
  EXPECT_EQ(overlap(box, {2, 0, 6, 2}), 4.0 / 12);
  EXPECT_EQ(overlap(box, {1, 1, 2, 2}), 1.0 / 8);
  EXPECT_EQ(overlap(box, {4, 0, 6, 2}), 0.0);    // side by side
  EXPECT_EQ(overlap(box, {9, 9, 10, 10}), 0.0);  // apart in both directions
  EXPECT_EQ(overlap({1, 1, 1, 1}, {1, 1, 1, 1}), 0.0);
}

TEST(PartInside, IsOfTheFirstBox) {
  EXPECT_EQ(part_inside({0, 0, 4, 2}, {-9, -9, 99, 99}), 1.0);
  EXPECT_EQ(part_inside({-9, -9, 9, 9}, {0, 0, 3, 3}), 9.0 / 324);
  EXPECT_EQ(part_inside({0, 0, 4, 2}, {3, 0, 9, 9}), 2.0 / 8);
  EXPECT_EQ(part_inside({1, 1, 1, 5}, {0, 0, 9, 9}), 0.0);
}

// A box moved by (a, b) anchors and c and d times as large.
TEST(Offsets, AreInWidthsAndHeightsOfTheAnchor) {
  const Box anchor{10, 20, 18, 36};  // around (14, 28), 8 by 16
  const double a = 0.25, b = -0.5, c = 2.0, d = 0.5;
  const double x = 14 + 8 * a, y = 28 + 16 * b, width = 8 * c, height = 16 * d;
  const Box box{x - width / 2, y - height / 2, x + width / 2, y + height / 2};
  const Offsets offsets = encode(anchor, box);
  EXPECT_DOUBLE_EQ(offsets.x, a);
  EXPECT_DOUBLE_EQ(offsets.y, b);
  EXPECT_DOUBLE_EQ(offsets.width, std::log(c));
  EXPECT_DOUBLE_EQ(offsets.height, std::log(d));
}

TEST(Offsets, AreZeroForTheAnchorItself) {
  const Offsets offsets = encode({1, 2, 5, 9}, {1, 2, 5, 9});
  EXPECT_EQ(offsets.x, 0.0);
  EXPECT_EQ(offsets.y, 0.0);
  EXPECT_EQ(offsets.width, 0.0);
  EXPECT_EQ(offsets.height, 0.0);
}

TEST(Offsets, AreDecodedToTheBoxTheyWereMadeFrom) {
  const unsigned int seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> place(-100, 500), size(1, 300);
  const auto draw = [&] {
    const double left = place(random), top = place(random);
    return Box{left, top, left + size(random), top + size(random)};
  };
  for (int i = 0; i < 1000; ++i) {
    const Box anchor = draw(), box = draw();
    const Box decoded = decode(anchor, encode(anchor, box));
    ASSERT_NEAR(decoded.left, box.left, 1e-9);
    ASSERT_NEAR(decoded.top, box.top, 1e-9);
    ASSERT_NEAR(decoded.right, box.right, 1e-9);
    ASSERT_NEAR(decoded.bottom, box.bottom, 1e-9);
  }
}

TEST(Offsets, ThatAreHugeGiveAFiniteBox) {
  const Box box = decode({0, 0, 2, 2}, {.width = 1e6, .height = 1e6});
  EXPECT_NEAR(box.width(), 2000, 1e-6);
  EXPECT_NEAR(box.height(), 2000, 1e-6);
}

TEST(Anchors, AreNineAtEachPlaceOfEachLevel) {
  for (const std::size_t side : {32U, 100U, 128U, 513U}) {
    std::size_t places = 0;
    for (int level = 3; level <= 7; ++level) {
      const auto a_side =
          static_cast<std::size_t>(std::ceil(std::ldexp(1.0 * static_cast<double>(side), -level)));
      EXPECT_EQ(places_of(side, level), a_side);
      places += a_side * a_side;
    }
    EXPECT_EQ(make_anchors(side, 4.0).size(), 9 * places) << side;
  }
}

// Anchor i of a level with r rows: s = i / 3 mod 3, form i mod 3, column i / 9 mod r, row i / 9 r.
TEST(Anchors, LieAroundTheirPlacesInAllSizesAndForms) {
  constexpr std::size_t side = 128;
  constexpr double size = 3.0;
  const std::vector<Box> anchors = make_anchors(side, size);
  std::size_t first = 0;
  for (int level = 3; level <= 7; ++level) {
    const std::size_t rows = side >> level;
    const double stride = std::pow(2, level);
    for (std::size_t i = 0; i < 9 * rows * rows; ++i) {
      const Box& anchor = anchors[first + i];
      const double length = size * stride * std::pow(2, static_cast<double>(i / 3 % 3) / 3);
      const double form = std::pow(2, 1 - static_cast<double>(i % 3));
      ASSERT_NEAR(anchor.area(), length * length, 1e-9);
      ASSERT_NEAR(anchor.width() / anchor.height(), form, 1e-12);
      ASSERT_NEAR(anchor.left + anchor.right, (2 * static_cast<double>(i / 9 % rows) + 1) * stride,
                  1e-9);
      ASSERT_NEAR(anchor.top + anchor.bottom, (2 * static_cast<double>(i / 9 / rows) + 1) * stride,
                  1e-9);
    }
    first += 9 * rows * rows;
  }
  EXPECT_EQ(first, anchors.size());
}

}  // namespace
