// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/safetensors_index.hpp"

#include <fmt/format.h>

#include <set>

#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/strict_json.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t max_index_bytes = 100'000'000;

// A name with a folder could reach any file of the system.
bool is_bare(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

SafetensorsIndex parse_index(const std::string& text, const fs::path& folder) {
  const json object = parse_strict_json(text);
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
  return index;
}

}  // namespace

bool is_index(const fs::path& path) { return path.extension() == ".json"; }

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
