// SPDX-License-Identifier: Apache-2.0
// The targets of training at each anchor.
#pragma once

#include <cstdint>
#include <vector>

#include "box.hpp"

namespace retinanet {

/// An object in an image.
struct Object {
  Box box{};
  std::int64_t category = 0;
  bool crowd = false;  ///< Many objects in one box: detections there are neither right nor wrong.
};

inline constexpr std::int64_t background = -1;  ///< The anchor has no object.
inline constexpr std::int64_t ignored = -2;     ///< The anchor does not count.

struct Targets {
  std::vector<std::int64_t> labels{};  ///< Per anchor: a category, or one of the two above.
  std::vector<float> offsets{};        ///< [anchors, 4]; zeros for an anchor without a category.
  std::int64_t found = 0;              ///< Number of anchors with a category.
};

/// An anchor is assigned the object that it overlaps most if that overlap is at least 0.5. It is
/// background below 0.4, and ignored in between. An object without such an anchor gets the free
/// anchor that overlaps it most. Background that lies at least half in a crowd is ignored. Objects
/// without area are skipped.
[[nodiscard]] Targets match(const std::vector<Box>& anchors, const std::vector<Object>& objects);

}  // namespace retinanet
