// SPDX-License-Identifier: Apache-2.0
// Generated images in place of X-rays.
#pragma once

#include <cstdint>
#include <filesystem>

namespace xray {

/// Writes the folders `normal` and `opacity` with `images` images in total, a quarter of them
/// normal, of 96 by 96 pixels, alternately JPEG and PNG. They show two dark lungs in a bright
/// chest, in the second folder with a bright spot in one lung. Equal seeds give equal images.
/// Throws std::runtime_error.
void generate(const std::filesystem::path& directory, int images, std::uint64_t seed);

}  // namespace xray
