// SPDX-License-Identifier: Apache-2.0
// One checkpoint as a safetensors file, on the disk or as bytes that travel between ranks. No
// communication. All functions throw CheckpointError.
//
// The tensors of a part have the names "<part>.<tensor>" and its metadata "<part>.<key>". A part
// that is text is the tensor "<part>", its bytes as U8. The per-rank parts have "own.<rank>."
// before their names. In the name of a part, '%', '.' and characters that are not printable ASCII
// are written as "%2E", and so are the first letters of "own", "kolo" and "__metadata__". An empty
// name is "%".
//
// The metadata also has the entries of CheckpointHeader as decimal numbers: "kolo.step",
// "kolo.metric" if there is one, "kolo.serial" and "kolo.ranks"; and "kolo.writer.version" with the
// checksums of safetensors_header.hpp. Files of other programs need only "kolo.step".
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

/// The parts of one rank as the bytes of a safetensors file, for rank 0.
[[nodiscard]] std::string encode_parts(const NamedStates& parts);

/// Writes a checkpoint of shared parts and of each rank's parts, as `encode_parts` returned them;
/// "" for a rank that has none. Writes under another name, flushes to the disk, and renames. On
/// failure `path` is unchanged and no other file is left.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const NamedStates& parts, const std::vector<std::string>& per_rank);

/// Reads the header, verifies its checksum, and checks that the file has the length that it states.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& path);

/// The bytes of a checkpoint's file, of which only the header is verified.
[[nodiscard]] std::string read_checkpoint(const std::filesystem::path& path);

/// The checkpoint in the bytes of the file at `path`, which messages name. Verifies the checksums.
[[nodiscard]] CheckpointContents parse_checkpoint(const std::filesystem::path& path,
                                                  const std::string& bytes);

}  // namespace kolo::internal
