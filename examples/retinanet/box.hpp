// SPDX-License-Identifier: Apache-2.0
// Rectangles in images.
#pragma once

namespace retinanet {

/// In pixels from the image's upper left corner.
struct Box {
  double left = 0.0;
  double top = 0.0;
  double right = 0.0;
  double bottom = 0.0;

  [[nodiscard]] double width() const { return right - left; }
  [[nodiscard]] double height() const { return bottom - top; }
  [[nodiscard]] double area() const { return width() * height(); }
};

/// The area that two boxes share.
[[nodiscard]] double intersection(const Box& a, const Box& b);

/// Intersection over union of two boxes, from 0 to 1; 0 for boxes without area.
[[nodiscard]] double overlap(const Box& a, const Box& b);

/// The fraction of `box` that lies in `region`, from 0 to 1; 0 for a box without area.
[[nodiscard]] double part_inside(const Box& box, const Box& region);

/// The network's targets: a box's position relative to an anchor, in the anchor's widths and
/// heights, and the logarithm of its relative size (Girshick et al., 2013,
/// https://arxiv.org/abs/1311.2524).
struct Offsets {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

/// Both boxes must have an area.
[[nodiscard]] Offsets encode(const Box& anchor, const Box& box);

/// The inverse. A box is limited to a thousand times the anchor's width and height.
[[nodiscard]] Box decode(const Box& anchor, const Offsets& offsets);

}  // namespace retinanet
