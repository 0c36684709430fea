#include "drawing.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>

namespace retinanet {
namespace {

using examples::Image;

// Three by five points, each row an octal digit from the top.
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

void paint(Image& image, std::size_t x, std::size_t y, const Colour& colour) {
  if (x >= image.width || y >= image.height) return;
  std::copy(colour.begin(), colour.end(),
            image.pixels.begin() + static_cast<std::ptrdiff_t>(3 * (y * image.width + x)));
}

void fill(Image& image, std::size_t left, std::size_t top, std::size_t right, std::size_t bottom,
          const Colour& colour) {
  for (std::size_t y = top; y < bottom; ++y) {
    for (std::size_t x = left; x < right; ++x) paint(image, x, y, colour);
  }
}

std::size_t pixel_at(double place, std::size_t most) {
  return static_cast<std::size_t>(std::clamp(std::round(place), 0.0, static_cast<double>(most)));
}

}  // namespace

Colour colour_of(std::int64_t category) {
  static constexpr std::array<Colour, 8> colours{{{255, 80, 60},
                                                  {70, 200, 70},
                                                  {80, 140, 255},
                                                  {255, 200, 0},
                                                  {230, 90, 230},
                                                  {0, 210, 210},
                                                  {255, 140, 40},
                                                  {170, 220, 60}}};
  return colours[static_cast<std::size_t>(category) % colours.size()];
}

void draw_box(Image& image, const Box& box, const Colour& colour, std::size_t thickness) {
  const std::size_t left = pixel_at(box.left, image.width);
  const std::size_t right = pixel_at(box.right, image.width);
  const std::size_t top = pixel_at(box.top, image.height);
  const std::size_t bottom = pixel_at(box.bottom, image.height);
  const std::size_t across = std::min(thickness, right - left);
  const std::size_t down = std::min(thickness, bottom - top);
  fill(image, left, top, right, top + down, colour);
  fill(image, left, bottom - down, right, bottom, colour);
  fill(image, left, top, left + across, bottom, colour);
  fill(image, right - across, top, right, bottom, colour);
}

void draw_text(Image& image, const std::string& text, double left, double top,
               const Colour& colour) {
  const std::size_t width = point * ((glyph_width + 1) * text.size() + 1);
  const std::size_t height = point * (glyph_height + 2);
  const std::size_t x0 = pixel_at(left, image.width - std::min(width, image.width));
  const std::size_t y0 = pixel_at(top, image.height - std::min(height, image.height));
  fill(image, x0, y0, x0 + width, y0 + height, colour);
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
