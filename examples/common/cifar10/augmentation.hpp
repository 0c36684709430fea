// SPDX-License-Identifier: Apache-2.0
// Data augmentation: small shifts and mirror images.
#pragma once

#include <cstdint>
#include <span>

#include "random.hpp"

namespace cifar10 {

/// The pixels that fill the area from which an image was shifted away.
enum class Outside : std::uint8_t {
  nearest,  ///< Copies of the nearest edge pixel.
  black
};

/// The shift of an image, and whether it is mirrored afterwards.
struct Transformation {
  int right = 0;
  int down = 0;
  bool flip = false;  ///< Swap left and right.
  Outside outside = Outside::nearest;
};

/// Draws a shift by whole pixels, of up to a tenth of the image each way, and a flip of half the
/// images.
[[nodiscard]] Transformation draw_transformation(Random& random);

/// Draws a crop of the original size from the image padded by four black pixels, and a flip of half
/// the images.
[[nodiscard]] Transformation draw_pad_crop_flip(Random& random);

/// Transforms one image of bytes [32, 32, 3] and scales it from 0..255 to 0..1. Both spans hold
/// `image_bytes` elements.
void transform(std::span<const std::uint8_t> image, const Transformation& transformation,
               std::span<float> out);

}  // namespace cifar10
