// How good detections are, as COCO counts it (https://cocodataset.org/#detection-eval).
#pragma once

#include <cstdint>
#include <vector>

#include "box.hpp"
#include "detection.hpp"

namespace retinanet {

/// What is to be found.
struct Truth {
  std::int64_t picture = 0;
  std::int64_t category = 0;
  Box box{};
  double area = 0.0;   ///< By which it is small, medium or large: that of the object's outline.
  bool crowd = false;  ///< Need not be found, and detections inside it are not wrong.
};

/// Means over the categories that have objects; NaN if none has.
struct AveragePrecision {
  double all = 0.0;     ///< Mean over overlaps of 0.5, 0.55, ... 0.95.
  double at_50 = 0.0;   ///< A detection that overlaps an object by half finds it.
  double at_75 = 0.0;   ///< Or by three quarters.
  double small = 0.0;   ///< As `all`, of objects of at most 32 * 32 pixels; others are ignored.
  double medium = 0.0;  ///< To 96 * 96 pixels.
  double large = 0.0;
};

/// Of each category at most 100 detections count in a picture. Precision is taken at 101 recalls.
/// What lies on the border of two sizes counts for both. Of equal scores, the first in the list
/// comes first.
[[nodiscard]] AveragePrecision average_precision(const std::vector<Truth>& truths,
                                                 const std::vector<Detection>& detections);

}  // namespace retinanet
