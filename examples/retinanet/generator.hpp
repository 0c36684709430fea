// Generated pictures for whoever has not COCO at hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace retinanet {

/// Makes the parts `train`, of `pictures` JPEGs of 128 by 96 pixels, and `val`, of a quarter as
/// many, in COCO's form and places: one to three rectangles and discs of any colour in each, on a
/// dark ground. The same for the same seed. Throws std::runtime_error.
void generate(const std::filesystem::path& directory, std::size_t pictures, std::uint64_t seed);

}  // namespace retinanet
