#include "augmentation.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "dataset.hpp"

namespace cifar10 {
namespace {

constexpr int last = static_cast<int>(side) - 1;
constexpr int largest_shift = static_cast<int>(side) / 10;

int draw_shift(Random& random) {
  return static_cast<int>(draw_below(random, 2 * largest_shift + 1)) - largest_shift;
}

std::size_t nearest_inside(int position) {
  return static_cast<std::size_t>(std::clamp(position, 0, last));
}

}  // namespace

Transformation draw_transformation(Random& random) {
  Transformation drawn;
  drawn.right = draw_shift(random);
  drawn.down = draw_shift(random);
  drawn.flip = draw_below(random, 2) == 1;
  return drawn;
}

void transform(std::span<const std::uint8_t> image, const Transformation& transformation,
               std::span<float> out) {
  // Where in its row each pixel of a row comes from: the same for all rows.
  std::array<std::size_t, side> source;
  for (int x = 0; x <= last; ++x) {
    const int shifted = transformation.flip ? last - x : x;
    source[static_cast<std::size_t>(x)] = nearest_inside(shifted - transformation.right) * channels;
  }
  constexpr float scale = 1.0F / 255.0F;
  float* pixel = out.data();
  for (int y = 0; y <= last; ++y) {
    const std::uint8_t* row =
        image.data() + nearest_inside(y - transformation.down) * side * channels;
    for (const std::size_t offset : source) {
      for (std::size_t channel = 0; channel < channels; ++channel) {
        *pixel++ = static_cast<float>(row[offset + channel]) * scale;
      }
    }
  }
}

}  // namespace cifar10
