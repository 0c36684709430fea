// A picture as the network takes it.
#pragma once

#include <cstddef>
#include <vector>

#include "coco.hpp"
#include "detection.hpp"
#include "matching.hpp"

namespace retinanet {

struct Sample {
  std::vector<float>
      pixels{};  ///< [3, side, side]: red, green, blue, around 0; 0 beside the picture.
  std::vector<Object> objects{};  ///< In pixels of the network's picture.
};

/// How a picture is made to fit a square of `side` pixels: its longer side becomes that.
[[nodiscard]] Fit fit_of(const Picture& picture, std::size_t side);

/// Reads the picture, and mirrors it, left to right, if asked to. Throws std::runtime_error, which
/// names the file, if it cannot be read or has another size than its data set says.
[[nodiscard]] Sample make_sample(const Picture& picture, std::size_t side, bool mirrored);

}  // namespace retinanet
