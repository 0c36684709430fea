// The boxes that the network starts from.
#pragma once

#include <cstddef>
#include <vector>

#include "box.hpp"

namespace retinanet {

inline constexpr int first_level = 3;  ///< Of the pyramid: there is a place every 2^3 pixels.
inline constexpr int last_level = 7;
inline constexpr std::size_t anchors_per_place = 9;

/// Nine at each place of each level (Lin et al., 2017, https://arxiv.org/abs/1708.02002): areas of
/// (`size` * 2^level * s)^2 with s of 1, 2^(1/3) and 2^(2/3), of which each is once twice as wide
/// as high, once square, and once twice as high as wide. In the order of level, row, column, s,
/// form. Level l of a picture of `side` pixels has `places_of(side, l)` rows and columns.
[[nodiscard]] std::vector<Box> make_anchors(std::size_t side, double size);

/// What is left of `side` pixels after having been halved and rounded up `level` times.
[[nodiscard]] std::size_t places_of(std::size_t side, int level);

}  // namespace retinanet
