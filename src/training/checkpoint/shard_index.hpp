// SPDX-License-Identifier: Apache-2.0
// The index of a folder with the state of a ShardedOptimizer: "state.json". It is written last, and
// says how many files the folder has. Each file and the index have the same key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "kolo/export.hpp"

namespace kolo::internal {

constexpr const char* shard_index_name = "state.json";

struct ShardIndex {
  std::string key;
  int ranks;  // that saved the state, each a file; 1 to 1,000,000

  friend bool operator==(const ShardIndex&, const ShardIndex&) = default;
};

/// JSON.
[[nodiscard]] std::string to_text(const ShardIndex& index);
/// Throws JsonFault for any text that is not an index.
[[nodiscard]] ShardIndex parse_shard_index(std::string_view text);

/// For a new state, whose files no process is writing yet: makes the folder, and removes its index
/// and the files of saves that were killed. Throws std::filesystem::filesystem_error.
KOLO_EXPORT void begin_shard_folder(const std::filesystem::path& folder);
/// Throws CheckpointError.
KOLO_EXPORT void write_shard_index(const std::filesystem::path& folder, const ShardIndex& index);
[[nodiscard]] KOLO_EXPORT ShardIndex read_shard_index(const std::filesystem::path& folder);

}  // namespace kolo::internal
