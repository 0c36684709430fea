// SPDX-License-Identifier: Apache-2.0
#include "augmentation.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "dataset.hpp"

namespace cifar10 {
namespace {

constexpr int last = static_cast<int>(side) - 1;
constexpr int max_shift = static_cast<int>(side) / 10;

constexpr int padding = 4;

int draw_shift(Random& random, int largest) {
  const auto shifts = static_cast<std::uint64_t>(2 * largest + 1);
  return static_cast<int>(draw_below(random, shifts)) - largest;
}

Transformation draw(Random& random, int largest, Outside outside) {
  Transformation drawn{.outside = outside};
  drawn.right = draw_shift(random, largest);
  drawn.down = draw_shift(random, largest);
  drawn.flip = draw_below(random, 2) == 1;
  return drawn;
}

// The source of a pixel within its row or column; nothing for a black pixel.
constexpr std::size_t nowhere = side;
std::size_t source_of(int position, Outside outside) {
  if (outside == Outside::black && (position < 0 || position > last)) return nowhere;
  return static_cast<std::size_t>(std::clamp(position, 0, last));
}

}  // namespace

Transformation draw_transformation(Random& random) {
  return draw(random, max_shift, Outside::nearest);
}

Transformation draw_pad_crop_flip(Random& random) { return draw(random, padding, Outside::black); }

void transform(std::span<const std::uint8_t> image, const Transformation& transformation,
               std::span<float> out) {
  // The source column of each pixel, the same for all rows.
  std::array<std::size_t, side> columns;
  for (int x = 0; x <= last; ++x) {
    const int shifted = transformation.flip ? last - x : x;
    columns[static_cast<std::size_t>(x)] =
        source_of(shifted - transformation.right, transformation.outside);
  }
  constexpr float scale = 1.0F / 255.0F;
  float* pixel = out.data();
  for (int y = 0; y <= last; ++y) {
    const std::size_t row = source_of(y - transformation.down, transformation.outside);
    for (const std::size_t column : columns) {
      const bool inside = row != nowhere && column != nowhere;
      const std::uint8_t* from = image.data() + (inside ? (row * side + column) * channels : 0);
      for (std::size_t channel = 0; channel < channels; ++channel) {
        *pixel++ = inside ? static_cast<float>(from[channel]) * scale : 0.0F;
      }
    }
  }
}

}  // namespace cifar10
