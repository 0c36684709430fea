// SPDX-License-Identifier: Apache-2.0
// TFRecord's checksum without ISA-L, which the examples use.
#include "bytes.hpp"

#include <array>

namespace tfrecord {
namespace {

constexpr std::array<std::uint32_t, 256> table = [] {
  constexpr std::uint32_t castagnoli = 0x82F63B78U;  // reflected
  std::array<std::uint32_t, 256> all{};
  for (std::uint32_t byte = 0; byte < all.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 != 0 ? castagnoli : 0);
    all[byte] = crc;
  }
  return all;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace tfrecord
