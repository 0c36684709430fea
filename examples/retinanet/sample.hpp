// SPDX-License-Identifier: Apache-2.0
// An image in the network's input format.
#pragma once

#include <cstddef>
#include <vector>

#include "coco.hpp"
#include "detection.hpp"
#include "matching.hpp"

namespace retinanet {

/// A pixel v from 0 to 255 becomes (v - center) / scale.
inline constexpr float sample_center = 127.5F, sample_scale = 64.0F;

struct Sample {
  std::vector<float>
      pixels{};  ///< [3, side, side]: red, green, blue, around 0; 0 outside the image.
  std::vector<Object> objects{};  ///< In pixels of the network's input.
};

/// Fits an image into a square: scales its longer side to `side` pixels.
[[nodiscard]] Fit fit_of(const Picture& picture, std::size_t side);

/// Reads the image, mirrored left to right on request. Throws std::runtime_error, naming the file,
/// if it cannot be read or its size differs from the data set's entry.
[[nodiscard]] Sample make_sample(const Picture& picture, std::size_t side, bool mirrored);

}  // namespace retinanet
