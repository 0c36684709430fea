// SPDX-License-Identifier: Apache-2.0
// One checkpoint as a safetensors file, on the disk or as bytes that travel between ranks. No
// communication. All functions throw CheckpointError.
//
// A tensor of a part is named "<part>.<tensor>", and a metadata entry "<part>.<key>". A part that
// is text is a tensor of U8 named "<part>". The names of per-rank parts begin with
// "per_rank.<rank>.". In the name of a part, '%', '.' and characters that are not printable ASCII
// are escaped as in "%2E", and so are the first letters of the names "per_rank", "kolo" and
// "__metadata__". An empty name is written "%".
//
// The metadata also has the entries of CheckpointHeader as decimal numbers: "kolo.step",
// "kolo.metric" if there is a metric, "kolo.serial" and "kolo.ranks". Kolo's own files also have
// "kolo.writer.version" and the checksums of safetensors_header.hpp. Files of other programs need
// only "kolo.step".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

struct CheckpointHeader {
  std::int64_t step = 0;
  std::optional<double> metric{};
  std::uint32_t serial = 0;  // grows with each save into the directory; at most `max_serial`
};

constexpr std::uint32_t max_serial = 0x7FFF'FFFF;

struct CheckpointContents {
  CheckpointHeader header{};
  NamedStates parts{};
  std::vector<NamedStates> per_rank{};
};

/// Encodes the parts of one rank as the bytes of a safetensors file, to be sent to rank 0.
[[nodiscard]] std::string encode_parts(const NamedStates& parts);

/// Writes a checkpoint of shared parts and of each rank's parts, as `encode_parts` returned them;
/// "" for a rank that has none. Writes under another name, flushes to the disk, and renames. On
/// failure `path` is unchanged and no other file is left.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const NamedStates& parts, const std::vector<std::string>& per_rank);

/// Reads the header, verifies its checksum, and checks that the file has the length that it states.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& path);

/// Reads the bytes of a checkpoint's file. Verifies only the header.
[[nodiscard]] std::string read_checkpoint(const std::filesystem::path& path);

/// Parses the bytes of the file at `path`, and verifies the checksums. Messages name `path`.
[[nodiscard]] CheckpointContents parse_checkpoint(const std::filesystem::path& path,
                                                  const std::string& bytes);

}  // namespace kolo::internal
