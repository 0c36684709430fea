// SPDX-License-Identifier: Apache-2.0
#include "augmentation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "dataset.hpp"

namespace {

using namespace cifar10;

// Pixel (y, x) of channel c: every position has a different color.
std::uint8_t value_at(int y, int x, int c) {
  return static_cast<std::uint8_t>(c == 0 ? 8 * y : c == 1 ? 8 * x : x + y);
}

std::vector<std::uint8_t> test_image() {
  std::vector<std::uint8_t> image;
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) image.push_back(value_at(y, x, c));
    }
  }
  return image;
}

std::vector<float> transformed(const Transformation& transformation) {
  std::vector<float> out(image_bytes, -1.0F);
  transform(test_image(), transformation, out);
  return out;
}

float pixel(const std::vector<float>& image, int y, int x, int c) {
  return image[static_cast<std::size_t>((y * 32 + x) * 3 + c)];
}

// The expected byte after scaling.
float scaled(std::uint8_t byte) { return static_cast<float>(byte) * (1.0F / 255.0F); }

TEST(Transform, WithoutATransformationScalesToOne) {
  const std::vector<float> out = transformed({});
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(pixel(out, y, x, c), scaled(value_at(y, x, c)));
    }
  }
  std::vector<float> white(image_bytes);
  transform(std::vector<std::uint8_t>(image_bytes, 255), {}, white);
  EXPECT_FLOAT_EQ(*std::min_element(white.begin(), white.end()), 1.0F);
  EXPECT_LE(*std::max_element(white.begin(), white.end()), 1.0F);
}

TEST(Transform, ShiftsAndFillsWithBlack) {
  for (const bool flip : {false, true}) {
    const std::vector<float> out =
        transformed({.right = 3, .down = -2, .flip = flip, .outside = Outside::black});
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) {
        const int from_y = y + 2, from_x = (flip ? 31 - x : x) - 3;
        const bool inside = from_y < 32 && from_x >= 0;
        for (int c = 0; c < 3; ++c) {
          const float wanted = inside ? scaled(value_at(from_y, from_x, c)) : 0.0F;
          ASSERT_EQ(pixel(out, y, x, c), wanted) << y << ", " << x;
        }
      }
    }
  }
}

TEST(DrawPadCropFlip, DrawsEveryShiftOfUpToFourPixels) {
  Random random = random_stream({1});
  std::set<int> right, down;
  int flips = 0;
  for (int i = 0; i < 2000; ++i) {
    const Transformation drawn = draw_pad_crop_flip(random);
    right.insert(drawn.right);
    down.insert(drawn.down);
    flips += drawn.flip ? 1 : 0;
    ASSERT_EQ(drawn.outside, Outside::black);
  }
  const std::set<int> all = {-4, -3, -2, -1, 0, 1, 2, 3, 4};
  EXPECT_EQ(right, all);
  EXPECT_EQ(down, all);
  EXPECT_NEAR(flips, 1000, 150);
}

TEST(Transform, ShiftsAndRepeatsTheEdge) {
  for (const int right : {-3, 0, 2}) {
    for (const int down : {-1, 0, 3}) {
      const std::vector<float> out = transformed({.right = right, .down = down});
      for (int y = 0; y < 32; ++y) {
        for (int x = 0; x < 32; ++x) {
          const int from_y = std::clamp(y - down, 0, 31);
          const int from_x = std::clamp(x - right, 0, 31);
          for (int c = 0; c < 3; ++c) {
            ASSERT_EQ(pixel(out, y, x, c), scaled(value_at(from_y, from_x, c)));
          }
        }
      }
    }
  }
}

TEST(Transform, FlipsLeftAndRight) {
  const std::vector<float> out = transformed({.flip = true});
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(pixel(out, y, x, c), scaled(value_at(y, 31 - x, c)));
    }
  }
}

TEST(Transform, ShiftsFirstAndFlipsThen) {
  const std::vector<float> shifted = transformed({.right = 2, .down = 1});
  const std::vector<float> both = transformed({.right = 2, .down = 1, .flip = true});
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(pixel(both, y, x, c), pixel(shifted, y, 31 - x, c));
    }
  }
}

TEST(DrawTransformation, ShiftsByUpToATenthEachWayAndFlipsHalf) {
  Random random = random_stream({1});
  std::set<int> right, down;
  int flips = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Transformation drawn = draw_transformation(random);
    right.insert(drawn.right);
    down.insert(drawn.down);
    flips += drawn.flip;
  }
  const std::set<int> all{-3, -2, -1, 0, 1, 2, 3};
  EXPECT_EQ(right, all);
  EXPECT_EQ(down, all);
  EXPECT_NEAR(flips, 5000, 250);  // five standard deviations
}

TEST(DrawTransformation, ComesFromItsStream) {
  Random one = random_stream({5, 0});
  Random same = random_stream({5, 0});
  Random other = random_stream({5, 1});
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const Transformation drawn = draw_transformation(one);
    const Transformation again = draw_transformation(same);
    EXPECT_EQ(drawn.right, again.right);
    EXPECT_EQ(drawn.down, again.down);
    EXPECT_EQ(drawn.flip, again.flip);
    differ += draw_transformation(other).right != drawn.right;
  }
  EXPECT_GT(differ, 50);
}

}  // namespace
