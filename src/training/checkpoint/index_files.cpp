// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/index_files.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/strict_json.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* shard_index_kind = "index of a state";
constexpr std::uint64_t max_shard_index_bytes = 100'000;
constexpr std::uint64_t max_shard_ranks = 1'000'000;

constexpr std::uint64_t max_index_bytes = 100'000'000;

// True for a file name without folders. A name with folders could reach any file of the system.
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

// Reads an index and passes its text to `parse`. Throws CheckpointError.
template <typename Parse>
auto read_json_file(const fs::path& path, const char* kind, std::uint64_t max_bytes,
                    const Parse& parse) {
  File file = open_to_read(path, kind);
  const std::uint64_t bytes = file.size();
  if (bytes > max_bytes)
    file.refuse(CheckpointFault::foreign, fmt::format("has {} bytes, too many", bytes));
  try {
    return parse(file.read(bytes));
  } catch (const JsonFault& fault) {
    file.refuse(CheckpointFault::corrupt, fmt::format("is corrupt: it {}", fault.what()));
  }
}

}  // namespace

bool is_index(const fs::path& path) { return path.extension() == ".json"; }

SafetensorsIndex read_index(const fs::path& path) {
  return read_json_file(path, "safetensors index", max_index_bytes, [&](const std::string& text) {
    return parse_index(text, path.parent_path());
  });
}

std::string to_text(const ShardIndex& index) {
  return json{{"key", index.key}, {"ranks", index.ranks}}.dump() + '\n';
}

ShardIndex parse_shard_index(std::string_view text) {
  const json object = parse_strict_json(text);
  const auto key = object.find("key");
  const auto ranks = object.find("ranks");
  if (key == object.end() || !key->is_string()) throw JsonFault("has no text 'key'");
  // The parser stores an integer as signed only if it is negative.
  if (ranks == object.end() || !ranks->is_number_unsigned() || ranks->get<std::uint64_t>() < 1 ||
      ranks->get<std::uint64_t>() > max_shard_ranks)
    throw JsonFault("has no number 'ranks' from 1 to 1,000,000");
  return {.key = key->get<std::string>(), .ranks = ranks->get<int>()};
}

void begin_shard_folder(const fs::path& folder) {
  fs::create_directories(folder);
  // From here until the new index is written, the folder holds no complete state.
  fs::remove(folder / shard_index_name);
  std::vector<fs::path> unfinished;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = finished_name(entry.path()).filename().string();
    if (name == shard_index_name || (name.starts_with("state-") && name.ends_with(".safetensors")))
      unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) fs::remove(path);
}

void write_shard_index(const fs::path& folder, const ShardIndex& index) {
  write_file(folder / shard_index_name, shard_index_kind,
             [&](File& file) { file.write(to_text(index)); });
}

ShardIndex read_shard_index(const fs::path& folder) {
  const fs::path path = folder / shard_index_name;
  std::error_code error;
  if (!fs::exists(path, error) && !error)
    throw CheckpointError(CheckpointFault::missing, path,
                          fmt::format("there is no complete state in '{}': it has no {}",
                                      folder.string(), shard_index_name));
  return read_json_file(path, shard_index_kind, max_shard_index_bytes, parse_shard_index);
}

}  // namespace kolo::internal
