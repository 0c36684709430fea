// SPDX-License-Identifier: Apache-2.0
#include "drawing.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>

namespace retinanet {
namespace {

using examples::Image;

// Letters of three by five dots. Each row, from the top, is an octal digit.
constexpr std::size_t glyph_width = 3, glyph_height = 5;
constexpr std::size_t point = 2;  // pixels

std::string_view glyph_of(char letter) {
  static const std::map<char, std::string_view> glyphs = {
      {'A', "25755"}, {'B', "65656"}, {'C', "34443"}, {'D', "65556"}, {'E', "74647"},
      {'F', "74644"}, {'G', "34553"}, {'H', "55755"}, {'I', "72227"}, {'J', "11152"},
      {'K', "55655"}, {'L', "44447"}, {'M', "57755"}, {'N', "65555"}, {'O', "25552"},
      {'P', "65644"}, {'Q', "25573"}, {'R', "65655"}, {'S', "34216"}, {'T', "72222"},
      {'U', "55557"}, {'V', "55552"}, {'W', "55775"}, {'X', "55255"}, {'Y', "55222"},
      {'Z', "71247"}, {'0', "75557"}, {'1', "26227"}, {'2', "71747"}, {'3', "71717"},
      {'4', "55711"}, {'5', "74717"}, {'6', "74757"}, {'7', "71111"}, {'8', "75757"},
      {'9', "75717"}, {'.', "00002"}, {'%', "51245"}};
  const auto found =
      glyphs.find(static_cast<char>(std::toupper(static_cast<unsigned char>(letter))));
  return found == glyphs.end() ? "00000" : found->second;
}

void paint(Image& image, std::size_t x, std::size_t y, const Color& color) {
  if (x >= image.width || y >= image.height) return;
  std::copy(color.begin(), color.end(),
            image.pixels.begin() + static_cast<std::ptrdiff_t>(3 * (y * image.width + x)));
}

void fill(Image& image, std::size_t left, std::size_t top, std::size_t right, std::size_t bottom,
          const Color& color) {
  for (std::size_t y = top; y < bottom; ++y) {
    for (std::size_t x = left; x < right; ++x) paint(image, x, y, color);
  }
}

std::size_t pixel_at(double position, std::size_t max_pixel) {
  return static_cast<std::size_t>(
      std::clamp(std::round(position), 0.0, static_cast<double>(max_pixel)));
}

}  // namespace

Color color_of(std::int64_t category) {
  static constexpr std::array<Color, 8> colors{{{255, 80, 60},
                                                {70, 200, 70},
                                                {80, 140, 255},
                                                {255, 200, 0},
                                                {230, 90, 230},
                                                {0, 210, 210},
                                                {255, 140, 40},
                                                {170, 220, 60}}};
  return colors[static_cast<std::size_t>(category) % colors.size()];
}

void draw_box(Image& image, const Box& box, const Color& color, std::size_t thickness) {
  const std::size_t left = pixel_at(box.left, image.width);
  const std::size_t right = pixel_at(box.right, image.width);
  const std::size_t top = pixel_at(box.top, image.height);
  const std::size_t bottom = pixel_at(box.bottom, image.height);
  const std::size_t across = std::min(thickness, right - left);
  const std::size_t down = std::min(thickness, bottom - top);
  fill(image, left, top, right, top + down, color);
  fill(image, left, bottom - down, right, bottom, color);
  fill(image, left, top, left + across, bottom, color);
  fill(image, right - across, top, right, bottom, color);
}

void draw_text(Image& image, const std::string& text, double left, double top, const Color& color) {
  const std::size_t width = point * ((glyph_width + 1) * text.size() + 1);
  const std::size_t height = point * (glyph_height + 2);
  const std::size_t x0 = pixel_at(left, image.width - std::min(width, image.width));
  const std::size_t y0 = pixel_at(top, image.height - std::min(height, image.height));
  fill(image, x0, y0, x0 + width, y0 + height, color);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view glyph = glyph_of(text[i]);
    for (std::size_t row = 0; row < glyph_height; ++row) {
      const int points = glyph[row] - '0';
      for (std::size_t column = 0; column < glyph_width; ++column) {
        if ((points >> (glyph_width - 1 - column) & 1) == 0) continue;
        const std::size_t x = x0 + point * (1 + (glyph_width + 1) * i + column);
        const std::size_t y = y0 + point * (1 + row);
        fill(image, x, y, x + point, y + point, {0, 0, 0});
      }
    }
  }
}

}  // namespace retinanet
