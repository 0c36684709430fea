// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the format of earlier versions, `.kolo` files, which are read but not written. All
// functions throw CheckpointError.
//
// The first 48 bytes, in little-endian order: "KOLOCKPT", u32 version, u32 flags, i64 step, f64
// metric, u64 length of the payload, u32 checksum of the payload, u32 checksum of the header up to
// here. The payload of checkpoint_payload.hpp follows. Bit 0 of the flags is set if there is a
// metric; the other bits are the serial number, which is 0 in files of version 1.
#pragma once

#include <filesystem>

#include "training/checkpoint/checkpoint_file.hpp"
#include "training/checkpoint/disk_file.hpp"

namespace kolo::internal {

/// Reads the first bytes of the file. True if it may be one of these, complete or cut off.
[[nodiscard]] bool is_kolo_file(File& file);

/// Reads the header and checks that the file has the length that it states.
[[nodiscard]] CheckpointHeader read_kolo_file_header(const std::filesystem::path& path);

/// Reads the whole file and checks it.
[[nodiscard]] CheckpointContents read_kolo_file(const std::filesystem::path& path);

}  // namespace kolo::internal
