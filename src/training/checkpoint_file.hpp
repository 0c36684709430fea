// One checkpoint on disk. No communication. Everything here throws CheckpointError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "kolo/training/checkpointer.hpp"

namespace kolo::detail {

/// The start of the file, 48 bytes, numbers little-endian: "KOLOCKPT", u32 version, u32 whether
/// there is a metric, i64 step, f64 metric, u64 length and u32 checksum of what follows, u32
/// checksum of all this.
struct CheckpointHeader {
  std::int64_t step = 0;
  std::optional<double> metric{};
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_checksum = 0;
};

struct CheckpointContents {
  CheckpointHeader header;
  std::string payload;
};

/// Writes under another name, flushes to the disk, renames. On failure `path` is as it was, and
/// nothing else is left.
void write_checkpoint(const std::filesystem::path& path, std::int64_t step,
                      const std::optional<double>& metric, const std::string& payload);

/// Reads the header; the file has the length that it says.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& path);

/// Reads and checks all of it.
[[nodiscard]] CheckpointContents read_checkpoint(const std::filesystem::path& path);

/// What files are called that are not whole yet.
[[nodiscard]] std::filesystem::path unfinished_name(const std::filesystem::path& path);

}  // namespace kolo::detail
