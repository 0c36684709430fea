// SPDX-License-Identifier: Apache-2.0
// The index of a set of safetensors files: JSON with a member "weight_map", the file of each tensor
// by the tensor's name, and a member "metadata".
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kolo/training/safetensors.hpp"

namespace kolo::internal {

struct SafetensorsIndex {
  std::map<std::string, std::string> file_of{};  // by the name of the tensor
  std::vector<std::filesystem::path> files{};    // with the folder of the index
};

/// True for the name of an index, whether it exists or not.
[[nodiscard]] bool is_index(const std::filesystem::path& path);

/// Throws CheckpointError. Afterwards all files are in the folder of the index.
[[nodiscard]] SafetensorsIndex read_index(const std::filesystem::path& path);

}  // namespace kolo::internal
