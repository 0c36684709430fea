// CRC-32, as zlib and PNG have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace kolo::detail {

/// Of `bytes`, or, given the checksum of what came before, of both together.
[[nodiscard]] std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

}  // namespace kolo::detail
