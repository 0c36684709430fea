// SPDX-License-Identifier: Apache-2.0
// One checkpoint on disk: a safetensors file. No communication. All functions throw
// CheckpointError.
//
// The tensors are those of the parts (see checkpoint_tensors.hpp). The metadata has the entries of
// CheckpointHeader as decimal numbers: "kolo.step", "kolo.metric" if there is one, "kolo.serial"
// and "kolo.ranks"; and "kolo.writer.version" with the checksums of safetensors_header.hpp. Files
// of other programs need only "kolo.step".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "kolo/training/checkpointer.hpp"
#include "training/checkpoint/checkpoint_payload.hpp"

namespace kolo::internal {

struct CheckpointHeader {
  std::int64_t step = 0;
  std::optional<double> metric{};
  std::uint32_t serial = 0;  // grows with each save into the directory; at most `max_serial`
};

constexpr std::uint32_t max_serial = 0x7FFF'FFFF;

struct CheckpointContents {
  CheckpointHeader header{};
  CheckpointPayload payload{};
};

/// For messages: "cannot read checkpoint 'a'".
constexpr const char* checkpoint_kind = "checkpoint";

/// Writes a checkpoint of shared parts and of each rank's own ones. Writes under another name,
/// flushes to the disk, and renames. On failure `path` is unchanged and no other file is left.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const Blobs& parts, const std::vector<Blobs>& own);

/// Reads the header, verifies its checksum, and checks that the file has the length that it states.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& path);

/// Reads the whole file and checks it.
[[nodiscard]] CheckpointContents read_checkpoint(const std::filesystem::path& path);

}  // namespace kolo::internal
