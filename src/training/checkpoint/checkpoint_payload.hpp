// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint as bytes: how rank 0 sends them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kolo/training/checkpointer.hpp"

namespace kolo::internal {

struct CheckpointPayload {
  Blobs parts{};
  std::vector<Blobs> own{};  // by rank
};

/// Numbers are little-endian. The payload is a u32 number of ranks, the shared parts, then each
/// rank's own parts. Parts are a u32 count, then for each part a u64 length and the name, and a u64
/// length and the bytes.
[[nodiscard]] std::string encode(const CheckpointPayload& payload);
[[nodiscard]] std::string encode(const Blobs& parts);

/// Throw InvalidArgument unless `encode` made the bytes.
[[nodiscard]] CheckpointPayload decode(std::string_view bytes);
[[nodiscard]] Blobs decode_parts(std::string_view bytes);

}  // namespace kolo::internal
