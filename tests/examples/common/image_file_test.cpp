// SPDX-License-Identifier: Apache-2.0
#include "image_file.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "temporary_directory.hpp"

namespace {

using namespace examples;

// A gradient of brightness, which JPEG preserves almost exactly.
Image slope(std::size_t width, std::size_t height) {
  Image image{.width = width, .height = height, .pixels = {}};
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>((2 * x + y) % 256));
    }
  }
  return image;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string error_of(const std::filesystem::path& file) {
  try {
    (void)read_image(file);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(ImageFile, PngComesBackAsItWas) {
  const TemporaryDirectory directory;
  const Image image = slope(61, 40);
  write_image(directory.path() / "a.png", image);
  const Image read = read_image(directory.path() / "a.png");
  EXPECT_EQ(read.width, 61U);
  EXPECT_EQ(read.height, 40U);
  EXPECT_EQ(read.pixels, image.pixels);
}

TEST(ImageFile, JpegComesBackNearlyAsItWas) {
  const TemporaryDirectory directory;
  const Image image = slope(61, 40);
  write_image(directory.path() / "a.JPG", image);
  const Image read = read_image(directory.path() / "a.JPG");
  EXPECT_EQ(read.width, 61U);
  EXPECT_EQ(read.height, 40U);
  for (std::size_t i = 0; i < read.pixels.size(); ++i) {
    ASSERT_LE(std::abs(int{read.pixels[i]} - int{image.pixels[i]}), 6) << i;
  }
}

// Stripes of red, green and blue.
TEST(ImageFile, HasColorsOrShadesOfGrayAsAskedFor) {
  const TemporaryDirectory directory;
  Image image = blank_image(48, 16, Colors::rgb);
  for (std::size_t i = 0; i < 48 * 16; ++i) image.pixels[3 * i + i % 48 / 16] = 255;
  // 0.299, 0.587 and 0.114 of 255; for PNGs 0.2126, 0.7152 and 0.0722 of the light, as in sRGB.
  const std::map<std::string, std::array<int, 3>> grays = {{"a.jpg", {76, 150, 29}},
                                                           {"a.png", {127, 220, 76}}};
  for (const auto& [name, shades] : grays) {
    write_image(directory.path() / name, image);
    const Image colors = read_image(directory.path() / name, Colors::rgb);
    const Image gray = read_image(directory.path() / name);
    ASSERT_EQ(colors.pixels.size(), image.pixels.size());
    ASSERT_EQ(gray.pixels.size(), 48U * 16);
    for (std::size_t stripe = 0; stripe < 3; ++stripe) {
      const std::size_t middle = 8 * 48 + 16 * stripe + 8;
      EXPECT_NEAR(gray.pixels[middle], shades[stripe], 3) << name << ' ' << stripe;
      for (std::size_t channel = 0; channel < 3; ++channel) {
        EXPECT_NEAR(colors.pixels[3 * middle + channel], channel == stripe ? 255 : 0, 3) << name;
      }
    }
  }
}

TEST(ImageFile, ThatIsCutOffIsRefusedByName) {
  const TemporaryDirectory directory;
  for (const std::string name : {"a.jpg", "a.png"}) {
    write_image(directory.path() / name, slope(90, 90));
    const std::string whole = content_of(directory.path() / name);
    for (const std::size_t size : {std::size_t{0}, std::size_t{10}, whole.size() / 2}) {
      const auto cut = directory.write("cut-" + name, whole.substr(0, size));
      EXPECT_NE(error_of(cut).find("cannot read '" + cut.string() + "'"), std::string::npos)
          << name << " of " << size << " bytes";
    }
  }
}

TEST(ImageFile, OfPngWithAFlippedBitInItsPixelsIsRefused) {
  const TemporaryDirectory directory;
  write_image(directory.path() / "a.png", slope(90, 90));
  std::string bytes = content_of(directory.path() / "a.png");
  const std::size_t data = bytes.find("IDAT") + 20;
  bytes[data] = static_cast<char>(bytes[data] ^ 16);
  EXPECT_FALSE(error_of(directory.write("bad.png", bytes)).empty());
}

TEST(ImageFile, OfAnotherKindOrNoneIsRefused) {
  const TemporaryDirectory directory;
  EXPECT_NE(error_of(directory.write("a.txt", "text")).find("neither .jpg nor .png"),
            std::string::npos);
  EXPECT_NE(error_of(directory.path() / "none.jpg").find("none.jpg"), std::string::npos);
  EXPECT_NE(error_of(directory.path() / "none.png").find("none.png"), std::string::npos);
}

TEST(Resized, TakesTheMeanOfWhatAPixelCovers) {
  // Two rows of four: halves of 2 columns and 1 row each.
  const Image image{.width = 4, .height = 2, .pixels = {0, 10, 100, 200, 40, 40, 8, 16}};
  EXPECT_EQ(resized(image, 2, 2).pixels, (std::vector<std::uint8_t>{5, 150, 40, 12}));
  EXPECT_EQ(resized(image, 1, 1).pixels, (std::vector<std::uint8_t>{52}));  // 414 / 8 = 51.75
}

TEST(Resized, TakesColorsOneByOne) {
  // A column of two, and beside it another.
  const Image image{.width = 2,
                    .height = 2,
                    .colors = Colors::rgb,
                    .pixels = {0, 1, 2, 100, 101, 102, 10, 21, 32, 120, 131, 142}};
  const Image low = resized(image, 2, 1);
  EXPECT_EQ(low.width, 2U);
  EXPECT_EQ(low.height, 1U);
  EXPECT_EQ(low.pixels, (std::vector<std::uint8_t>{5, 11, 17, 110, 116, 122}));
}

TEST(Resized, KeepsAnEvenImageEven) {
  const Image even{.width = 37, .height = 23, .pixels = std::vector<std::uint8_t>(37 * 23, 200)};
  for (const std::size_t side : {1U, 7U, 23U, 64U}) {
    EXPECT_EQ(resized(even, side, side).pixels, std::vector<std::uint8_t>(side * side, 200))
        << side;
  }
}

}  // namespace
