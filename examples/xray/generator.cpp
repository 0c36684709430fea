// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "image_file.hpp"

namespace xray {
namespace {

constexpr std::size_t side = 96;
using Random = std::mt19937_64;

double draw(Random& random, double from, double to) {
  return from + (to - from) * static_cast<double>(random() >> 11) * 0x1p-53;
}

struct Ellipse {
  double x, y, width, height;

  // The ellipse's weight at a point: 1 near the center, 0 outside, with a soft edge.
  [[nodiscard]] double at(double px, double py) const {
    const double distance = std::hypot((px - x) / width, (py - y) / height);
    return std::clamp((1.0 - distance) * 4, 0.0, 1.0);
  }
};

examples::Image draw_chest(Random& random, bool with_spot) {
  const double middle = draw(random, 0.46, 0.54), top = draw(random, 0.44, 0.56);
  const Ellipse left{middle - 0.19, top, draw(random, 0.13, 0.16), draw(random, 0.28, 0.34)};
  const Ellipse right{middle + 0.19, top, draw(random, 0.13, 0.16), draw(random, 0.28, 0.34)};
  const Ellipse& lung = random() % 2 == 0 ? left : right;
  const double size = draw(random, 0.04, 0.09);
  const Ellipse spot{lung.x + draw(random, -0.06, 0.06), lung.y + draw(random, -0.15, 0.15), size,
                     size};
  const double brightness = draw(random, 130, 180);
  const double strength = with_spot ? draw(random, 30, 70) : 0.0;

  examples::Image image = examples::blank_image(side, side, examples::Colors::gray);
  for (std::size_t y = 0; y < side; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      const double px = static_cast<double>(x) / side, py = static_cast<double>(y) / side;
      const double lungs = std::max(left.at(px, py), right.at(px, py));
      const double ribs = 12 * std::sin(py * 55) * lungs;
      const double value =
          brightness - 90 * lungs + ribs + strength * spot.at(px, py) + draw(random, -25, 25);
      image.pixels[y * side + x] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
    }
  }
  return image;
}

}  // namespace

void generate(const std::filesystem::path& directory, int images, std::uint64_t seed) {
  Random random(seed);
  for (int i = 0; i < images; ++i) {
    const bool with_spot = i % 4 != 0;
    const std::filesystem::path folder = directory / (with_spot ? "opacity" : "normal");
    std::filesystem::create_directories(folder);
    const char* kind = i / 4 % 2 == 0 ? "jpg" : "png";
    examples::write_image(folder / fmt::format("{:05}.{}", i, kind), draw_chest(random, with_spot));
  }
}

}  // namespace xray
