// SPDX-License-Identifier: Apache-2.0
// JSON files that list other files: the index of a set of safetensors files, and the index of a
// folder with the state of a ShardedOptimizer.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/export.hpp"

namespace kolo::internal {

/// The member "weight_map" of such an index: the file of each tensor.
struct SafetensorsIndex {
  std::map<std::string, std::string> file_of{};  // by the name of the tensor
  std::vector<std::filesystem::path> files{};    // with the folder of the index
};

/// True for the name of an index, whether it exists or not.
[[nodiscard]] bool is_index(const std::filesystem::path& path);

/// Throws CheckpointError. Afterwards all files are in the folder of the index.
[[nodiscard]] SafetensorsIndex read_index(const std::filesystem::path& path);

constexpr const char* shard_index_name = "state.json";

/// The index of a ShardedOptimizer's state. It is written last, and says how many files the folder
/// has. Each file and the index have the same key.
struct ShardIndex {
  std::string key;
  int ranks;  // the number of files, one for each rank that saved; 1 to 1,000,000

  friend bool operator==(const ShardIndex&, const ShardIndex&) = default;
};

/// JSON.
[[nodiscard]] std::string to_text(const ShardIndex& index);
/// Throws JsonFault for any text that is not an index.
[[nodiscard]] ShardIndex parse_shard_index(std::string_view text);

/// Prepares a folder for a new state that no process is writing yet: makes it, and removes its
/// index and the files of saves that were killed. Throws std::filesystem::filesystem_error.
KOLO_EXPORT void begin_shard_folder(const std::filesystem::path& folder);
/// Throws CheckpointError.
KOLO_EXPORT void write_shard_index(const std::filesystem::path& folder, const ShardIndex& index);
[[nodiscard]] KOLO_EXPORT ShardIndex read_shard_index(const std::filesystem::path& folder);

}  // namespace kolo::internal
