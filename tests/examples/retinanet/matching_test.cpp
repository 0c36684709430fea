// SPDX-License-Identifier: Apache-2.0
#include "matching.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "moved_box.hpp"

namespace {

using namespace retinanet;

using Labels = std::vector<std::int64_t>;

TEST(Matching, GoesByOverlap) {
  // 1, 9/11, 7/13, 6/14, 5/15 and 0.
  const std::vector<Box> anchors{moved(0), moved(1), moved(3), moved(4), moved(5), moved(20)};
  const Targets targets = match(anchors, {{.box = moved(0), .category = 7}});
  EXPECT_EQ(targets.labels, (Labels{7, 7, 7, ignored, background, background}));
  EXPECT_EQ(targets.found, 3);
}

TEST(Matching, GivesTheOffsetsOfTheObject) {
  const Targets targets =
      match({moved(0), moved(20), moved(2)}, {{.box = moved(1), .category = 0}});
  ASSERT_EQ(targets.offsets.size(), 12U);
  EXPECT_FLOAT_EQ(targets.offsets[0], 0.1F);
  for (std::size_t i = 1; i < 8; ++i) EXPECT_EQ(targets.offsets[i], 0.0F) << i;
  EXPECT_FLOAT_EQ(targets.offsets[8], -0.1F);
}

TEST(Matching, GivesAnAnchorTheObjectItOverlapsMost) {
  const Targets targets = match(
      {moved(0), moved(2)}, {{.box = moved(2), .category = 1}, {.box = moved(0), .category = 2}});
  EXPECT_EQ(targets.labels, (Labels{2, 1}));
}

TEST(Matching, GivesEachObjectAnAnchor) {
  // The small box overlaps the anchors by a tenth and less; the first is another's already.
  const Targets targets =
      match({moved(0), moved(4), moved(30)},
            {{.box = moved(0), .category = 1}, {.box = {5, 0, 6, 10}, .category = 2}});
  EXPECT_EQ(targets.labels, (Labels{1, 2, background}));
  EXPECT_EQ(targets.found, 2);
}

TEST(Matching, OfAnObjectThatNoAnchorTouchesFindsNone) {
  const Targets targets = match({moved(0)}, {{.box = moved(50), .category = 1}});
  EXPECT_EQ(targets.labels, (Labels{background}));
}

TEST(Matching, IgnoresWhatLiesInACrowd) {
  const Object crowd{.box = {0, 0, 100, 10}, .category = 3, .crowd = true};
  const Targets targets = match({moved(0), moved(94), moved(96), moved(200)}, {crowd});
  EXPECT_EQ(targets.labels, (Labels{ignored, ignored, background, background}));
  EXPECT_EQ(targets.found, 0);
}

TEST(Matching, FindsAnObjectInACrowd) {
  const Object crowd{.box = {0, 0, 100, 10}, .category = 3, .crowd = true};
  EXPECT_EQ(match({moved(0)}, {crowd, {.box = moved(0), .category = 1}}).labels, (Labels{1}));
}

TEST(Matching, DoesNotLookForABoxWithoutArea) {
  const Targets targets = match({moved(0)}, {{.box = {2, 2, 2, 8}, .category = 3}});
  EXPECT_EQ(targets.labels, (Labels{background}));
  for (const float offset : targets.offsets) EXPECT_EQ(offset, 0.0F);
}

}  // namespace
