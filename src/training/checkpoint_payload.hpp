// What a checkpoint holds as bytes, without its file's header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kolo/training/checkpointer.hpp"

namespace kolo::detail {

struct CheckpointPayload {
  Blobs parts{};
  std::vector<Blobs> own{};  // by rank
};

/// Numbers are little-endian: u32 the number of ranks, then the shared parts and those of each
/// rank. Parts: u32 how many, then of each u64 length and name, u64 length and bytes.
[[nodiscard]] std::string encode(const Blobs& parts, const std::vector<std::string>& encoded_own);
[[nodiscard]] std::string encode(const Blobs& parts);

/// Throws InvalidArgument if the bytes are anything but what `encode` made.
[[nodiscard]] CheckpointPayload decode(std::string_view bytes);

}  // namespace kolo::detail
