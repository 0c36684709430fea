// SPDX-License-Identifier: Apache-2.0
#include "box.hpp"

#include <algorithm>
#include <cmath>

namespace retinanet {

double intersection(const Box& a, const Box& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return std::max(width, 0.0) * std::max(height, 0.0);
}

double overlap(const Box& a, const Box& b) {
  const double shared = intersection(a, b);
  const double covered = a.area() + b.area() - shared;
  return covered > 0.0 ? shared / covered : 0.0;
}

double part_inside(const Box& box, const Box& region) {
  const double area = box.area();
  return area > 0.0 ? intersection(box, region) / area : 0.0;
}

Offsets encode(const Box& anchor, const Box& box) {
  return {.x = (box.left + box.right - anchor.left - anchor.right) / 2 / anchor.width(),
          .y = (box.top + box.bottom - anchor.top - anchor.bottom) / 2 / anchor.height(),
          .width = std::log(box.width() / anchor.width()),
          .height = std::log(box.height() / anchor.height())};
}

Box decode(const Box& anchor, const Offsets& offsets) {
  const double max_log = std::log(1000.0);
  const double x = (anchor.left + anchor.right) / 2 + offsets.x * anchor.width();
  const double y = (anchor.top + anchor.bottom) / 2 + offsets.y * anchor.height();
  const double half_width = anchor.width() / 2 * std::exp(std::min(offsets.width, max_log));
  const double half_height = anchor.height() / 2 * std::exp(std::min(offsets.height, max_log));
  return {.left = x - half_width,
          .top = y - half_height,
          .right = x + half_width,
          .bottom = y + half_height};
}

}  // namespace retinanet
