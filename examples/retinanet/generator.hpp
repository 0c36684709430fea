// SPDX-License-Identifier: Apache-2.0
// Generated images in place of COCO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace retinanet {

/// Writes the part `train` with `pictures` JPEGs of 128 by 96 pixels, and `val` with a quarter as
/// many, in COCO's format and layout. Each image has one to three rectangles and discs on a dark
/// background. Equal seeds give equal images. Throws std::runtime_error.
void generate(const std::filesystem::path& directory, std::size_t pictures, std::uint64_t seed);

}  // namespace retinanet
