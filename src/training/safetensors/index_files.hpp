// SPDX-License-Identifier: Apache-2.0
// The index of a set of safetensors files: a JSON file that lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/state_dict.hpp"

namespace kolo::internal {

/// The index of a set of safetensors files. Its member "weight_map" names the file of each tensor.
struct SafetensorsIndex {
  std::map<std::string, std::string> file_of{};  // by the name of the tensor
  std::vector<std::filesystem::path> files{};    // paths in the folder of the index
  Metadata metadata{};                           // the texts of its member "metadata"
  std::uint64_t bytes = 0;                       // of all tensors
};

/// The usual name of an index.
constexpr const char* safetensors_index_name = "model.safetensors.index.json";

/// True for the name of an index, whether it exists or not.
[[nodiscard]] bool is_index(const std::filesystem::path& path);

/// The metadata entry for a checksum of all other entries and of the files of the tensors: 8
/// hexadecimal digits.
constexpr std::string_view index_checksum_key = "kolo.writer.crc32.index";
constexpr std::uint64_t max_index_bytes = 1'000'000'000;

/// Prints an index, without `files`, as JSON. Sets the checksum if the metadata has an entry for
/// it.
[[nodiscard]] std::string to_text(const SafetensorsIndex& index);
/// Parses an index that is in this folder, and verifies the checksum if it has one. Throws
/// JsonFault for any other text.
[[nodiscard]] SafetensorsIndex parse_index(const std::string& text,
                                           const std::filesystem::path& folder);
/// Reads an index. All files of the result are in its folder. Throws CheckpointError.
[[nodiscard]] SafetensorsIndex read_index(const std::filesystem::path& path);

}  // namespace kolo::internal
