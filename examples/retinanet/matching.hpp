// What the network should say at each anchor.
#pragma once

#include <cstdint>
#include <vector>

#include "box.hpp"

namespace retinanet {

/// Something to be found in a picture.
struct Object {
  Box box{};
  std::int64_t category = 0;
  bool crowd = false;  ///< Many of the category in one box, which is neither right nor wrong.
};

inline constexpr std::int64_t background = -1;  ///< Nothing is to be found from this anchor.
inline constexpr std::int64_t ignored = -2;     ///< This anchor does not count.

struct Targets {
  std::vector<std::int64_t> labels{};  ///< Of each anchor: a category, or one of the two above.
  std::vector<float> offsets{};        ///< [anchors, 4]; zeros where there is no category.
  std::int64_t found = 0;              ///< How many anchors have a category.
};

/// An anchor is to find the object that it overlaps most, if by half or more; if by less than 0.4
/// it is background; between the two it is ignored. An object that no anchor overlaps so much gets
/// the one that overlaps it most. Background that lies by half in a crowd is ignored. Objects
/// without area are not looked for.
[[nodiscard]] Targets match(const std::vector<Box>& anchors, const std::vector<Object>& objects);

}  // namespace retinanet
