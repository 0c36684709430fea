// SPDX-License-Identifier: Apache-2.0
#include "training/safetensors/index_files.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "training/bytes.hpp"
#include "training/safetensors/disk_file.hpp"
#include "training/safetensors/safetensors_header.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// True for a file name without folders. A name with folders could reach any file of the system.
bool is_bare(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

std::string checksum_of(const SafetensorsIndex& index) {
  Metadata metadata = index.metadata;
  metadata.erase(std::string(index_checksum_key));
  const json all{metadata, index.bytes, index.file_of};
  constexpr auto replace = json::error_handler_t::replace;  // names may come from any file
  return print_checksum(crc32(all.dump(-1, ' ', false, replace)));
}

}  // namespace

bool is_index(const fs::path& path) { return path.extension() == ".json"; }

SafetensorsIndex parse_index(const std::string& text, const fs::path& folder) {
  json object = parse_strict_json(text);
  const auto map = object.find("weight_map");
  if (map == object.end() || !map->is_object()) throw JsonFault("has no object 'weight_map'");
  SafetensorsIndex index;
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_bare(file.get_ref<const std::string&>()))
      throw JsonFault(fmt::format("has no valid file name for tensor '{}'", shown(tensor)));
    names.insert(file.get<std::string>());
    index.file_of[tensor] = file.get<std::string>();
  }
  for (const std::string& name : names) index.files.push_back(folder / name);
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return index;
  for (const auto& [key, value] : metadata->items())
    if (value.is_string()) index.metadata[key] = value.get<std::string>();
  if (const auto size = metadata->find("total_size");
      size != metadata->end() && size->is_number_unsigned())
    index.bytes = size->get<std::uint64_t>();
  const auto stated = index.metadata.find(std::string(index_checksum_key));
  if (stated != index.metadata.end() && stated->second != checksum_of(index))
    throw JsonFault(
        "has a wrong checksum (a program that changes the file must remove the metadata whose "
        "names begin with 'kolo.writer.')");
  return index;
}

std::string to_text(const SafetensorsIndex& index) {
  json metadata = index.metadata;
  metadata["total_size"] = index.bytes;
  if (index.metadata.contains(std::string(index_checksum_key)))
    metadata[index_checksum_key] = checksum_of(index);
  return json{{"metadata", metadata}, {"weight_map", index.file_of}}.dump(1) + '\n';
}

SafetensorsIndex read_index(const fs::path& path) {
  File file = open_to_read(path, "safetensors index");
  const std::uint64_t bytes = file.size();
  if (bytes > max_index_bytes)
    file.refuse(CheckpointFault::foreign, fmt::format("has {} bytes, too many", bytes));
  try {
    return parse_index(file.read(bytes), path.parent_path());
  } catch (const JsonFault& fault) {
    file.refuse(CheckpointFault::corrupt, fmt::format("is corrupt: it {}", fault.what()));
  }
}

}  // namespace kolo::internal
