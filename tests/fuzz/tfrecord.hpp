// SPDX-License-Identifier: Apache-2.0
// Helpers shared by the targets of TFRecord files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kolo::internal::fuzz {

/// Repairs the checksums of each record with a plausible length. The length of the last record is
/// corrected to the remaining bytes, unless it is far off.
void repair_records(std::span<std::uint8_t> file);

/// The bytes that `tfrecord::RecordWriter` writes.
[[nodiscard]] std::string write_records(const std::vector<std::string>& records);

}  // namespace kolo::internal::fuzz
