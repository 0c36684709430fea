// SPDX-License-Identifier: Apache-2.0
#include "sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "image_file.hpp"

namespace retinanet {
namespace {

examples::Image read(const Picture& picture) {
  examples::Image image = examples::read_image(picture.file, examples::Colors::rgb);
  if (image.width != picture.width || image.height != picture.height) {
    throw std::runtime_error(fmt::format(
        "'{}' has {} x {} pixels, but picture {} of the annotations {} x {}", picture.file.string(),
        image.width, image.height, picture.id, picture.width, picture.height));
  }
  return image;
}

std::size_t scaled(std::size_t pixels, double scale) {
  return static_cast<std::size_t>(std::max(std::round(static_cast<double>(pixels) * scale), 1.0));
}

Box placed(const Box& box, const Fit& fit, bool mirrored) {
  Box result{.left = box.left * fit.scale,
             .top = box.top * fit.scale,
             .right = box.right * fit.scale,
             .bottom = box.bottom * fit.scale};
  if (mirrored) {
    const double width = static_cast<double>(fit.width) * fit.scale;
    result = {.left = width - result.right,
              .top = result.top,
              .right = width - result.left,
              .bottom = result.bottom};
  }
  return result;
}

}  // namespace

Fit fit_of(const Picture& picture, std::size_t side) {
  const auto longer = static_cast<double>(std::max(picture.width, picture.height));
  return {.scale = static_cast<double>(side) / longer,
          .width = picture.width,
          .height = picture.height};
}

Sample make_sample(const Picture& picture, std::size_t side, bool mirrored) {
  const Fit fit = fit_of(picture, side);
  const examples::Image image =
      resized(read(picture), scaled(picture.width, fit.scale), scaled(picture.height, fit.scale));
  Sample sample{.pixels = std::vector<float>(3 * side * side, 0.0F)};
  const std::uint8_t* value = image.pixels.data();
  for (std::size_t y = 0; y < image.height; ++y) {
    for (std::size_t x = 0; x < image.width; ++x) {
      const std::size_t column = mirrored ? image.width - 1 - x : x;
      for (std::size_t channel = 0; channel < 3; ++channel) {
        sample.pixels[(channel * side + y) * side + column] =
            (static_cast<float>(*value++) - sample_center) / sample_scale;
      }
    }
  }
  for (const Annotation& annotation : picture.annotations) {
    Object object = annotation.object;
    object.box = placed(object.box, fit, mirrored);
    sample.objects.push_back(object);
  }
  return sample;
}

}  // namespace retinanet
