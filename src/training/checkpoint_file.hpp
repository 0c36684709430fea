// SPDX-License-Identifier: Apache-2.0
// One checkpoint on disk. No communication. All functions throw CheckpointError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "kolo/training/checkpointer.hpp"

namespace kolo::internal {

/// The first 48 bytes of the file, in little-endian order: "KOLOCKPT", u32 version, u32 flags, i64
/// step, f64 metric, u64 length of the payload, u32 checksum of the payload, u32 checksum of the
/// header up to here. The payload follows. Bit 0 of the flags is set if there is a metric; the
/// other bits are the serial number, which is 0 in files of version 1.
struct CheckpointHeader {
  std::uint32_t serial = 0;  // grows with each save into the directory; at most `max_serial`
  std::int64_t step = 0;
  std::optional<double> metric{};
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_checksum = 0;
};

constexpr std::uint32_t max_serial = 0x7FFF'FFFF;

struct CheckpointContents {
  CheckpointHeader header;
  std::string payload;
};

/// Writes under another name, flushes to the disk, and renames. On failure `path` is unchanged and
/// no other file is left.
void write_checkpoint(const std::filesystem::path& path, std::int64_t step,
                      const std::optional<double>& metric, const std::string& payload,
                      std::uint32_t serial = 0);

/// Reads the header and checks that the file has the length that it states.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& path);

/// Reads the whole file and checks it.
[[nodiscard]] CheckpointContents read_checkpoint(const std::filesystem::path& path);

/// The name of a checkpoint that is still being written.
[[nodiscard]] std::filesystem::path unfinished_name(const std::filesystem::path& path);

}  // namespace kolo::internal
