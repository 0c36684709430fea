// SPDX-License-Identifier: Apache-2.0
#include "bytes.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace tfrecord {

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::size_t max_part = 1U << 30;  // the library takes an int
  std::uint32_t crc = 0xFFFFFFFFU;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, std::min(bytes.size(), max_part));
    // The library only reads, although its parameter is not const.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
    crc = crc32_iscsi(data, static_cast<int>(part.size()), crc);
    bytes.remove_prefix(part.size());
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace tfrecord
