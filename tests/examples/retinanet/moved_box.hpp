// SPDX-License-Identifier: Apache-2.0
// Boxes with overlaps that are easy to compute.
#pragma once

#include "box.hpp"

namespace retinanet {

/// 10 pixels wide and high, and `x` to the right: overlaps the unmoved one by (10 - x) / (10 + x).
inline Box moved(double x) { return {x, 0, x + 10, 10}; }

}  // namespace retinanet
