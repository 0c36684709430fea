// SPDX-License-Identifier: Apache-2.0
// Anchors: the reference boxes of the network's predictions.
#pragma once

#include <cstddef>
#include <vector>

#include "box.hpp"

namespace retinanet {

inline constexpr int first_level = 3;  ///< First pyramid level: a position every 2^3 pixels.
inline constexpr int last_level = 7;
inline constexpr std::size_t anchors_per_place = 9;

/// Nine anchors at each position of each level (Lin et al., 2017,
/// https://arxiv.org/abs/1708.02002): areas of (`size` * 2^level * s)^2 with s of 1, 2^(1/3) and
/// 2^(2/3), each with aspect ratios of 2, 1 and 1/2. Ordered by level, row, column, s, aspect
/// ratio. Level l of an image of `side` pixels has `places_of(side, l)` rows and columns.
[[nodiscard]] std::vector<Box> make_anchors(std::size_t side, double size);

/// `side` halved and rounded up `level` times: the positions of a level along one side.
[[nodiscard]] std::size_t places_of(std::size_t side, int level);

}  // namespace retinanet
