// Rectangles in pictures.
#pragma once

namespace retinanet {

/// In pixels from the picture's upper left corner.
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

/// The area that two boxes share over the area that they cover together: from 0 to 1. 0 for boxes
/// without area.
[[nodiscard]] double overlap(const Box& a, const Box& b);

/// The part of `box` that lies in `region`: from 0 to 1. 0 for a box without area.
[[nodiscard]] double part_inside(const Box& box, const Box& region);

/// Where a box lies from an anchor, in the anchor's widths and heights, and how much larger it is,
/// as logarithms: what the network learns (Girshick et al., 2013, https://arxiv.org/abs/1311.2524).
struct Offsets {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

/// Both boxes must have an area.
[[nodiscard]] Offsets encode(const Box& anchor, const Box& box);

/// The reverse. No box becomes more than a thousand times as wide or high as its anchor.
[[nodiscard]] Box decode(const Box& anchor, const Offsets& offsets);

}  // namespace retinanet
