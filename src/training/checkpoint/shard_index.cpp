// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/shard_index.hpp"

#include <fmt/format.h>

#include <cstdint>
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

}  // namespace

std::string to_text(const ShardIndex& index) {
  return json{{"key", index.key}, {"ranks", index.ranks}}.dump() + '\n';
}

ShardIndex parse_shard_index(std::string_view text) {
  const json object = parse_strict_json(text);
  const auto key = object.find("key");
  const auto ranks = object.find("ranks");
  if (key == object.end() || !key->is_string()) throw JsonFault("has no text 'key'");
  // Unsigned: the parser makes only negative integers signed.
  if (ranks == object.end() || !ranks->is_number_unsigned() || ranks->get<std::uint64_t>() < 1 ||
      ranks->get<std::uint64_t>() > max_shard_ranks)
    throw JsonFault("has no number 'ranks' from 1 to 1,000,000");
  return {.key = key->get<std::string>(), .ranks = ranks->get<int>()};
}

void begin_shard_folder(const fs::path& folder) {
  fs::create_directories(folder);
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
  File file = open_to_read(path, shard_index_kind);
  const std::uint64_t bytes = file.size();
  if (bytes > max_shard_index_bytes)
    file.refuse(CheckpointFault::foreign, fmt::format("has {} bytes, too many", bytes));
  try {
    return parse_shard_index(file.read(bytes));
  } catch (const JsonFault& fault) {
    file.refuse(CheckpointFault::corrupt, fmt::format("is corrupt: it {}", fault.what()));
  }
}

}  // namespace kolo::internal
