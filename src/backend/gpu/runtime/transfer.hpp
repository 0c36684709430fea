// SPDX-License-Identifier: Apache-2.0
// The work of the transfer kernel: it copies elements between many pairs of places, and scales and
// converts them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "kolo/types.hpp"
#include "reduction/scaling.hpp"

namespace kolo::internal::backend::gpu {

/// Divides each element, then multiplies it, like `reduction::with_scaling`.
struct Scaling {
  std::int64_t divisor = 1;
  double scale = 1.0;

  [[nodiscard]] constexpr bool none() const { return divisor == 1 && scale == 1.0; }
};

/// Consecutive elements. The types are the same, or one is f32 or f64 and the other f16 or bf16.
/// Memory may lie at any address. The places do not overlap, unless both the places and the types
/// are the same. Booleans become 0 or 1.
struct Segment {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t elements = 0;
  Scaling scaling{};
  DType from_type = DType::u8;
  DType to_type = DType::u8;
  std::int64_t first_tile = 0;
};

/// A block of threads processes this many bytes of the wider type at a time.
inline constexpr std::int64_t tile_bytes = 32 << 10;

[[nodiscard]] constexpr std::int64_t tile_elements(const Segment& segment) {
  const std::int64_t from = signed_size_of(segment.from_type);
  const std::int64_t to = signed_size_of(segment.to_type);
  return tile_bytes / (from > to ? from : to);
}

/// The segments of one launch. They are a parameter of the kernel, which spares the host a copy to
/// the device, and a block of memory to keep until the GPU has read it.
struct TransferTable {
  static constexpr std::size_t max_count = 72;

  std::int64_t tiles = 0;
  std::int64_t count = 0;
  std::array<Segment, max_count> segments{};
};
// A parameter of 4 KB is accepted by all drivers; one of 32 KB needs a driver of CUDA 12.1.
static_assert(sizeof(TransferTable) <= 4096);

/// Takes the first segments, as many as fit into a table, and assigns tiles to them.
[[nodiscard]] inline TransferTable make_table(std::span<const Segment> segments) {
  TransferTable table;
  for (const Segment& segment : segments.first(std::min(segments.size(), table.max_count))) {
    const std::int64_t each = tile_elements(segment);
    Segment& added = table.segments[static_cast<std::size_t>(table.count++)];
    added = segment;
    added.first_tile = table.tiles;
    table.tiles += (segment.elements + each - 1) / each;
  }
  return table;
}

}  // namespace kolo::internal::backend::gpu
