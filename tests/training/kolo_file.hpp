// SPDX-License-Identifier: Apache-2.0
// Checkpoints as earlier versions of the library wrote them.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "training/bytes.hpp"
#include "training/checkpoint/checkpoint_file.hpp"

namespace kolo::internal::testing_support {

/// The bytes of a `.kolo` file. Files of version 1 have no serial number.
[[nodiscard]] inline std::string kolo_file(const CheckpointHeader& header,
                                           const std::string& payload, std::uint32_t version = 2) {
  std::string bytes = "KOLOCKPT";
  append_little_endian(bytes, version);
  const std::uint32_t serial = version == 1 ? 0 : header.serial;
  append_little_endian(bytes, (serial << 1) | std::uint32_t{header.metric ? 1U : 0U});
  append_little_endian(bytes, static_cast<std::uint64_t>(header.step));
  append_little_endian(bytes, std::bit_cast<std::uint64_t>(header.metric.value_or(0.0)));
  append_little_endian(bytes, std::uint64_t{payload.size()});
  append_little_endian(bytes, crc32(payload));
  append_little_endian(bytes, crc32(bytes));
  return bytes + payload;
}

}  // namespace kolo::internal::testing_support
