// SPDX-License-Identifier: Apache-2.0
// Checksums and byte order of files.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kolo::internal {

/// The CRC-32 of zlib and PNG. To checksum bytes in pieces, pass the checksum of the preceding
/// pieces as `before`.
[[nodiscard]] std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

/// Appends a number, least significant byte first, on any machine.
template <std::unsigned_integral Integer>
void append_little_endian(std::string& bytes, Integer number) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    bytes += static_cast<char>((number >> (8 * i)) & 0xFFU);
  }
}

/// Reads a number from the start of `bytes`, which must hold at least sizeof(Integer) bytes.
template <std::unsigned_integral Integer>
[[nodiscard]] Integer from_little_endian(std::string_view bytes) {
  Integer number = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    number = static_cast<Integer>(number | static_cast<Integer>(byte) << (8 * i));
  }
  return number;
}

}  // namespace kolo::internal
