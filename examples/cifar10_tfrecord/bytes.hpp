// SPDX-License-Identifier: Apache-2.0
// Checksums and byte order of TFRecord files.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tfrecord {

/// CRC-32C (Castagnoli).
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// The checksum as it is stored: rotated by 15 bits, plus a constant. A CRC over bytes that contain
/// their own CRC is weak; the mask avoids that.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

// Numbers as bytes, least significant byte first.
template <std::unsigned_integral T>
[[nodiscard]] T from_little_endian(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[i]));
  }
  return value;
}

template <std::unsigned_integral T>
[[nodiscard]] std::string to_little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

}  // namespace tfrecord
