#include "backend/cuda/transfer.hpp"

namespace kolo::backend::cuda {

std::int64_t number_tiles(std::span<Segment> segments) {
  std::int64_t tiles = 0;
  for (Segment& segment : segments) {
    const std::int64_t each = tile_elements(segment);
    segment.first_tile = tiles;
    tiles += (segment.elements + each - 1) / each;
  }
  return tiles;
}

}  // namespace kolo::backend::cuda
