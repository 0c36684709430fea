// SPDX-License-Identifier: Apache-2.0
#include "anchors.hpp"

#include <array>
#include <cmath>

namespace retinanet {
namespace {

// The anchors around a position at the origin.
std::vector<Box> shapes_of(double size) {
  std::vector<Box> shapes;
  for (const double scale : {1.0, std::cbrt(2.0), std::cbrt(4.0)}) {
    for (const double form : {2.0, 1.0, 0.5}) {  // width over height
      const double half_width = size * scale * std::sqrt(form) / 2;
      const double half_height = size * scale / std::sqrt(form) / 2;
      shapes.push_back({-half_width, -half_height, half_width, half_height});
    }
  }
  return shapes;
}

}  // namespace

std::size_t places_of(std::size_t side, int level) {
  const std::size_t stride = std::size_t{1} << level;
  return (side + stride - 1) / stride;
}

std::vector<Box> make_anchors(std::size_t side, double size) {
  std::vector<Box> anchors;
  for (int level = first_level; level <= last_level; ++level) {
    const double stride = std::ldexp(1.0, level);
    const std::vector<Box> shapes = shapes_of(size * stride);
    const std::size_t places = places_of(side, level);
    for (std::size_t row = 0; row < places; ++row) {
      for (std::size_t column = 0; column < places; ++column) {
        const double x = (static_cast<double>(column) + 0.5) * stride;
        const double y = (static_cast<double>(row) + 0.5) * stride;
        for (const Box& shape : shapes) {
          anchors.push_back({x + shape.left, y + shape.top, x + shape.right, y + shape.bottom});
        }
      }
    }
  }
  return anchors;
}

}  // namespace retinanet
