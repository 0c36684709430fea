// SPDX-License-Identifier: Apache-2.0
// Images: reading, drawing and generating.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

#include "coco.hpp"
#include "drawing.hpp"
#include "generator.hpp"
#include "results.hpp"
#include "sample.hpp"
#include "temporary_directory.hpp"

namespace {

using namespace retinanet;
using examples::Colors;
using examples::Image;

// 40 x 20: the left half red, the right half blue.
Picture halves(const TemporaryDirectory& directory) {
  Image image = examples::blank_image(40, 20, Colors::rgb);
  for (std::size_t i = 0; i < 40 * 20; ++i) image.pixels[3 * i + (i % 40 < 20 ? 0 : 2)] = 255;
  examples::write_image(directory.path() / "halves.png", image);
  Picture picture{.id = 3, .file = directory.path() / "halves.png", .width = 40, .height = 20};
  picture.annotations = {
      {.object = {.box = {4, 8, 12, 18}, .category = 1}, .area = 80},
      {.object = {.box = {0, 0, 40, 20}, .category = 0, .crowd = true}, .area = 1}};
  return picture;
}

TEST(Sample, IsScaledIntoTheUpperLeftCorner) {
  const TemporaryDirectory directory;
  const Sample sample = make_sample(halves(directory), 20, /*mirrored=*/false);
  ASSERT_EQ(sample.pixels.size(), 3U * 20 * 20);
  constexpr float high = 127.5F / 64, low = -127.5F / 64;
  for (std::size_t y = 0; y < 20; ++y) {
    for (std::size_t x = 0; x < 20; ++x) {
      const bool is_picture = y < 10;
      const auto expect = [&](std::size_t channel, float value) {
        ASSERT_EQ(sample.pixels[(channel * 20 + y) * 20 + x], is_picture ? value : 0.0F)
            << channel << ' ' << y << ' ' << x;
      };
      expect(0, x < 10 ? high : low);
      expect(1, low);
      expect(2, x < 10 ? low : high);
    }
  }
  ASSERT_EQ(sample.objects.size(), 2U);
  EXPECT_EQ(sample.objects[0].category, 1);
  EXPECT_EQ(sample.objects[0].box.left, 2);
  EXPECT_EQ(sample.objects[0].box.top, 4);
  EXPECT_EQ(sample.objects[0].box.right, 6);
  EXPECT_EQ(sample.objects[0].box.bottom, 9);
  EXPECT_TRUE(sample.objects[1].crowd);
}

TEST(Sample, IsMirroredWithItsBoxes) {
  const TemporaryDirectory directory;
  const Sample sample = make_sample(halves(directory), 20, /*mirrored=*/true);
  EXPECT_EQ(sample.pixels[0], -127.5F / 64);  // red, on the left
  EXPECT_EQ(sample.pixels[19], 127.5F / 64);
  EXPECT_EQ(sample.objects[0].box.left, 20 - 6);
  EXPECT_EQ(sample.objects[0].box.right, 20 - 2);
  EXPECT_EQ(sample.objects[0].box.top, 4);
}

TEST(Sample, OfAPictureOfAnotherSizeIsRefused) {
  const TemporaryDirectory directory;
  Picture picture = halves(directory);
  picture.width = 41;
  try {
    (void)make_sample(picture, 20, false);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "'" + picture.file.string() +
                                "' has 40 x 20 pixels, but picture 3 of the annotations 41 x 20");
  }
  picture.file = directory.path() / "none.jpg";
  EXPECT_THROW((void)make_sample(picture, 20, false), std::runtime_error);
}

// The pixels that are not black.
std::string drawn(const Image& image) {
  std::string text;
  for (std::size_t i = 0; i < image.width * image.height; ++i) {
    text += image.pixels[3 * i] != 0 ? '#' : '.';
    if (i % image.width == image.width - 1) text += '\n';
  }
  return text;
}

TEST(Drawing, DrawsABoxAlongItsInside) {
  Image image = examples::blank_image(8, 6, Colors::rgb);
  draw_box(image, {1, 1, 7, 5}, {9, 9, 9}, 1);
  EXPECT_EQ(drawn(image),
            "........\n"
            ".######.\n"
            ".#....#.\n"
            ".#....#.\n"
            ".######.\n"
            "........\n");
}

TEST(Drawing, LeavesOutWhatIsOutside) {
  Image image = examples::blank_image(5, 4, Colors::rgb);
  draw_box(image, {-9, -9, 99, 2.6}, {9, 9, 9}, 1);
  EXPECT_EQ(drawn(image), "#####\n#...#\n#####\n.....\n");
  draw_box(image, {2, 3, 2, 3}, {9, 9, 9}, 2);  // no area
  EXPECT_EQ(drawn(image), "#####\n#...#\n#####\n.....\n");
}

// Two letters of three by five points on a ground of nine by seven, a point being two pixels.
TEST(Drawing, WritesOnAGroundThatIsInsideThePicture) {
  Image image = examples::blank_image(30, 20, Colors::rgb);
  draw_text(image, "t1", 25, 19, {9, 9, 9});
  std::string points;
  for (std::size_t y = 6; y < 20; y += 2) {
    for (std::size_t x = 12; x < 30; x += 2)
      points += image.pixels[3 * (30 * y + x)] != 0 ? '.' : '#';
    points += '\n';
  }
  EXPECT_EQ(points,
            ".........\n"
            ".###..#..\n"
            "..#..##..\n"
            "..#...#..\n"
            "..#...#..\n"
            "..#..###.\n"
            ".........\n");
  EXPECT_EQ(image.pixels[3 * (30 * 5 + 12)], 0);  // above the ground
  Image small = examples::blank_image(4, 4, Colors::rgb);
  draw_text(small, "a long text", 1, 1, {9, 9, 9});
  EXPECT_EQ(small.pixels[0], 9);
}

class Generated : public testing::Test {
 protected:
  Generated() { generate(directory_.path() / "shapes", 20, /*seed=*/3); }
  TemporaryDirectory directory_;
};

TEST_F(Generated, PicturesAreReadAsCocosAre) {
  const DataSet train = read_part(directory_.path() / "shapes", "train");
  const DataSet val = read_part(directory_.path() / "shapes", "val");
  EXPECT_EQ(train.pictures.size(), 20U);
  EXPECT_EQ(val.pictures.size(), 5U);
  EXPECT_EQ(train.categories, (std::vector<std::string>{"rectangle", "disc"}));
  EXPECT_EQ(val.categories, train.categories);
  std::set<std::int64_t> seen;
  for (const Picture& picture : train.pictures) {
    EXPECT_FALSE(picture.annotations.empty());
    EXPECT_NO_THROW((void)make_sample(picture, 64, false)) << picture.file;
    for (const Annotation& annotation : picture.annotations) {
      seen.insert(annotation.object.category);
      const double area = annotation.object.box.area();
      EXPECT_NEAR(annotation.area,
                  annotation.object.category == 1 ? area * std::acos(-1.0) / 4 : area, 1e-6);
    }
  }
  EXPECT_EQ(seen.size(), 2U);
}

// The ground is darker than any shape: the middle of a shape that is in front is not.
TEST_F(Generated, PicturesShowTheirObjects) {
  const DataSet data = read_part(directory_.path() / "shapes", "train");
  for (const Picture& picture : data.pictures) {
    const Image image = examples::read_image(picture.file, Colors::rgb);
    const Box& box = picture.annotations.back().object.box;
    const auto x = static_cast<std::size_t>((box.left + box.right) / 2);
    const auto y = static_cast<std::size_t>((box.top + box.bottom) / 2);
    const std::uint8_t* pixel = image.pixels.data() + 3 * (y * image.width + x);
    EXPECT_GT(std::max({pixel[0], pixel[1], pixel[2]}), 200) << picture.file;
  }
}

TEST_F(Generated, PicturesAreTheSameForTheSameSeedOnly) {
  generate(directory_.path() / "again", 20, 3);
  generate(directory_.path() / "other", 20, 4);
  const auto first_box = [&](const char* name) {
    return read_part(directory_.path() / name, "train").pictures[0].annotations[0].object.box;
  };
  EXPECT_EQ(first_box("again").left, first_box("shapes").left);
  EXPECT_EQ(first_box("again").bottom, first_box("shapes").bottom);
  EXPECT_NE(first_box("other").area(), first_box("shapes").area());
}

TEST_F(Generated, PicturesAreWrittenWithWhatWasFound) {
  const DataSet data = read_part(directory_.path() / "shapes", "val");
  // Across the dark lower edge, of which no shape covers all.
  const Detection high{.picture = 1, .category = 0, .box = {10, 20, 60, 96}, .score = 0.9};
  const Detection low{.picture = 1, .category = 0, .box = {70, 20, 120, 96}, .score = 0.2};
  draw_results(directory_.path() / "found", "val", data, {high, low}, 2, /*min_score=*/0.5);
  for (const int id : {1, 2}) {
    const std::string name = "val-" + std::to_string(id) + ".jpg";
    EXPECT_TRUE(std::filesystem::exists(directory_.path() / "found" / name));
  }
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "found/val-3.jpg"));

  // The lower edge, where only the high score has one: as red as the first category's color.
  const Image image = examples::read_image(directory_.path() / "found/val-2.jpg", Colors::rgb);
  const auto mean_red = [&](std::size_t left, std::size_t right) {
    double sum = 0;
    for (std::size_t x = left; x < right; ++x) sum += image.pixels[3 * (94 * image.width + x)];
    return sum / static_cast<double>(right - left);
  };
  EXPECT_GT(mean_red(20, 50), 180);
  EXPECT_LT(mean_red(80, 110), 120);
}

}  // namespace
