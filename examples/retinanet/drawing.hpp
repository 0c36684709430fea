// Boxes and their names, drawn into pictures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "box.hpp"
#include "image_file.hpp"

namespace retinanet {

using Colour = std::array<std::uint8_t, 3>;  ///< Red, green, blue.

/// A bright colour, by which categories are told apart.
[[nodiscard]] Colour colour_of(std::int64_t category);

/// The box's outline, `thickness` pixels wide and inside the box; what lies outside the picture is
/// left out.
void draw_box(examples::Image& image, const Box& box, const Colour& colour,
              std::size_t thickness = 2);

/// Text on a ground of that colour, its upper left corner at a place of the picture, or as near to
/// it as all of it is seen. Letters are drawn as capitals; what is no letter, digit, dot or sign of
/// percent is a gap.
void draw_text(examples::Image& image, const std::string& text, double left, double top,
               const Colour& colour);

}  // namespace retinanet
