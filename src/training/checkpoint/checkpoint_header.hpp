// SPDX-License-Identifier: Apache-2.0
// The header of a checkpoint: what it states about itself, in the metadata of its index and files.
//
// The entries are decimal numbers: "kolo.step", "kolo.metric" if there is a metric, "kolo.serial"
// in the index, "kolo.ranks" and "kolo.files"; and "kolo.key", which is random and the same in all
// files of a save. Kolo's own files also have "kolo.writer.version" and checksums: those of
// safetensors_header.hpp, or that of the index. Checkpoints of other programs need only
// "kolo.step".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

struct CheckpointHeader {
  std::int64_t step = 0;
  std::optional<double> metric{};
  std::uint32_t serial = 0;  // grows with each save into the directory; at most `max_serial`; 0:
                             // unknown
  int ranks = 0;             // number of ranks of the session that saved it
  int files = 0;             // 0: unknown
  std::string key{};
};

constexpr std::uint32_t max_serial = 0x7FFF'FFFF;

[[nodiscard]] Metadata metadata_of(const CheckpointHeader& header);
/// Throws SafetensorsFault for metadata that is not that of a checkpoint.
[[nodiscard]] CheckpointHeader header_from(const Metadata& metadata);
/// Throws SafetensorsFault if a file that Kolo wrote has lost a checksum. Otherwise a damaged file
/// could pass as one of another program, which needs none.
void require_checksums(const Metadata& metadata);

}  // namespace kolo::internal
