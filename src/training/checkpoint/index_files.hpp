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

/// The index of a set of safetensors files. Its member "weight_map" names the file of each tensor.
struct SafetensorsIndex {
  std::map<std::string, std::string> file_of{};  // by the name of the tensor
  std::vector<std::filesystem::path> files{};    // paths in the folder of the index
};

/// True for the name of an index, whether it exists or not.
[[nodiscard]] bool is_index(const std::filesystem::path& path);

/// Reads an index. All files of the result are in its folder. Throws CheckpointError.
[[nodiscard]] SafetensorsIndex read_index(const std::filesystem::path& path);

constexpr const char* shard_index_name = "state.json";

/// The index of a ShardedOptimizer's state. It is written last, so a folder with an index holds a
/// complete state. The files and the index of a state have the same key.
struct ShardIndex {
  std::string key;
  int ranks;  // the number of files, one for each rank that saved; 1 to 1,000,000

  friend bool operator==(const ShardIndex&, const ShardIndex&) = default;
};

/// Prints the index as JSON.
[[nodiscard]] std::string to_text(const ShardIndex& index);
/// Parses an index. Throws JsonFault for any other text.
[[nodiscard]] ShardIndex parse_shard_index(std::string_view text);

/// Prepares a folder for a new state that no process is writing yet: makes it, and removes its
/// index and the files of saves that were killed. Throws std::filesystem::filesystem_error.
KOLO_EXPORT void begin_shard_folder(const std::filesystem::path& folder);
/// Writes and reads the index of a folder. Both throw CheckpointError.
KOLO_EXPORT void write_shard_index(const std::filesystem::path& folder, const ShardIndex& index);
[[nodiscard]] KOLO_EXPORT ShardIndex read_shard_index(const std::filesystem::path& folder);

}  // namespace kolo::internal
