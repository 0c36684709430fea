// SPDX-License-Identifier: Apache-2.0
// Boxes with overlaps that are easy to compute.
#pragma once

#include "box.hpp"

namespace retinanet {

/// A box of 10 by 10 pixels at `x`. It overlaps the box at 0 by (10 - x) / (10 + x).
inline Box moved(double x) { return {x, 0, x + 10, 10}; }

}  // namespace retinanet
