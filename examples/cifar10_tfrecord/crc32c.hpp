// The checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace tfrecord {

/// CRC-32C (Castagnoli).
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// As it is stored: rotated by 15 bits, plus a constant, so that a checksum over bytes that hold
/// checksums stays a good one.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tfrecord
