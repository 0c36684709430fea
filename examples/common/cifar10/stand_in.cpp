// SPDX-License-Identifier: Apache-2.0
#include "stand_in.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "random.hpp"

namespace cifar10 {
namespace {

constexpr double pi = std::numbers::pi;

// Noise from -255 to 255 with mean 0.
double noise(std::uint64_t bits) {
  return static_cast<double>(bits & 0xFF) + static_cast<double>(bits >> 8 & 0xFF) - 255.0;
}

void draw_image(std::uint8_t label, Random& random, std::uint8_t* pixels) {
  const double sign = draw_below(random, 2) == 0 ? -1.0 : 1.0;
  const double angle = sign * label * (pi / 2) / (classes - 1);
  const double waves = 2.5 + 2.0 * draw_fraction(random);  // across the image
  const double phase = 2 * pi * draw_fraction(random);
  const double along_x = 2 * pi * waves / side * std::cos(angle);
  const double along_y = 2 * pi * waves / side * std::sin(angle);

  std::array<double, channels> tint;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double hue =
        static_cast<double>(label) / classes + static_cast<double>(channel) / channels;
    tint[channel] = 128.0 + 25.0 * std::sin(2 * pi * hue) + 40.0 * (draw_fraction(random) - 0.5);
  }
  for (std::size_t y = 0; y < side; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      const double wave =
          std::sin(along_x * static_cast<double>(x) + along_y * static_cast<double>(y) + phase);
      std::uint64_t bits = random();
      for (std::size_t channel = 0; channel < channels; ++channel, bits >>= 16) {
        const double value = tint[channel] + 40.0 * wave + 0.5 * noise(bits);
        *pixels++ = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
      }
    }
  }
}

Dataset draw_images(std::size_t count, Random random) {
  Dataset dataset;
  dataset.labels.resize(count);
  dataset.pixels.resize(count * image_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    dataset.labels[i] = static_cast<std::uint8_t>(i % classes);
    draw_image(dataset.labels[i], random, dataset.pixels.data() + i * image_bytes);
  }
  return dataset;
}

}  // namespace

Data make_stand_in(std::size_t train_images, std::uint64_t seed) {
  return {.train = draw_images(train_images, random_stream({seed, 0})),
          .test = draw_images(train_images / 5, random_stream({seed, 1}))};
}

}  // namespace cifar10
