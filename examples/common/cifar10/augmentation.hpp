// What makes each epoch see other images: small shifts and mirror images.
#pragma once

#include <cstdint>
#include <span>

#include "random.hpp"

namespace cifar10 {

/// What comes in where an image was moved away from.
enum class Outside : std::uint8_t {
  nearest,  ///< The nearest pixel of the edge, again.
  black
};

/// By how much an image is moved, and whether it is mirrored afterwards.
struct Transformation {
  int right = 0;
  int down = 0;
  bool flip = false;  ///< Left and right change places.
  Outside outside = Outside::nearest;
};

/// Shifts of whole pixels of up to a tenth of the image each way, and flips of every other image.
[[nodiscard]] Transformation draw_transformation(Random& random);

/// Four black pixels are put around the image, a part of its old size is cut out, and every other
/// one is flipped.
[[nodiscard]] Transformation draw_pad_crop_flip(Random& random);

/// Transforms one image of bytes [32, 32, 3] and scales it from 0..255 to 0..1. Both spans hold
/// `image_bytes` elements.
void transform(std::span<const std::uint8_t> image, const Transformation& transformation,
               std::span<float> out);

}  // namespace cifar10
