// Generated images for whoever has none at hand.
#pragma once

#include <cstdint>
#include <filesystem>

namespace xray {

/// Makes the folders `normal` and `opacity` with `images` pictures of 96 by 96 pixels in all, a
/// quarter of them normal, in turns JPEG and PNG: two dark lungs in a bright chest, in the second
/// folder with a bright spot in one of them. The same for the same seed. Throws std::runtime_error.
void generate(const std::filesystem::path& directory, int images, std::uint64_t seed);

}  // namespace xray
