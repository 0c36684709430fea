// SPDX-License-Identifier: Apache-2.0
// COCO's average precision of detections (https://cocodataset.org/#detection-eval).
#pragma once

#include <cstdint>
#include <vector>

#include "box.hpp"
#include "detection.hpp"

namespace retinanet {

/// An object that should be found.
struct Truth {
  std::int64_t picture = 0;
  std::int64_t category = 0;
  Box box{};
  double area = 0.0;   ///< Area of the object's outline: decides if it is small, medium or large.
  bool crowd = false;  ///< Need not be found; detections inside it are not wrong.
};

/// Means over the categories that have objects; NaN if none has.
struct AveragePrecision {
  double all = 0.0;     ///< Mean over overlaps of 0.5, 0.55, ... 0.95.
  double at_50 = 0.0;   ///< At an overlap of 0.5.
  double at_75 = 0.0;   ///< At an overlap of 0.75.
  double small = 0.0;   ///< As `all`, for objects of at most 32 * 32 pixels; others are ignored.
  double medium = 0.0;  ///< Up to 96 * 96 pixels.
  double large = 0.0;
};

/// At most 100 detections count per image and category. Precision is taken at 101 recalls. An
/// object on the border of two sizes counts for both. Detections with equal scores keep their
/// order.
[[nodiscard]] AveragePrecision average_precision(const std::vector<Truth>& truths,
                                                 const std::vector<Detection>& detections);

}  // namespace retinanet
