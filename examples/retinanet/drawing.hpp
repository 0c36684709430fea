// SPDX-License-Identifier: Apache-2.0
// Draws boxes and labels into images.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "box.hpp"
#include "image_file.hpp"

namespace retinanet {

using Color = std::array<std::uint8_t, 3>;  ///< Red, green, blue.

/// A bright color per category.
[[nodiscard]] Color color_of(std::int64_t category);

/// Draws the box's outline, `thickness` pixels wide and inside the box, clipped to the image.
void draw_box(examples::Image& image, const Box& box, const Color& color,
              std::size_t thickness = 2);

/// Draws text on a background of the given color. The upper left corner of the text is at the given
/// position, or as near to it as the image's border allows. Letters appear as capitals; characters
/// other than letters, digits, dot and percent sign are blank.
void draw_text(examples::Image& image, const std::string& text, double left, double top,
               const Color& color);

}  // namespace retinanet
