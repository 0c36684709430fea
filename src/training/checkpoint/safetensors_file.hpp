// SPDX-License-Identifier: Apache-2.0
// Safetensors files on disk.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/safetensors_header.hpp"

namespace kolo::internal {

/// Reads the header of a file. The data follows at the file's position. Throws CheckpointError.
[[nodiscard]] SafetensorsHeader read_header(File& file);

/// Reads the data of each tensor to the place of the same index, which has room for it, and
/// verifies the checksum of the data if the metadata has one. Throws CheckpointError.
void read_data(File& file, const SafetensorsHeader& header, const std::vector<char*>& places);

/// Sets the checksum of the data, if the metadata has an entry for it.
void set_data_checksum(SafetensorsHeader& header, const std::vector<std::string_view>& data);

/// Writes a file; `data` has the bytes of each tensor. The header must be laid out. Sets the
/// checksums if the metadata has entries for them. Throws CheckpointError, and InvalidArgument as
/// `print_header`.
void write_safetensors(const std::filesystem::path& path, const std::string& kind,
                       SafetensorsHeader header, const std::vector<std::string_view>& data);

}  // namespace kolo::internal
