// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_header.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

#include "training/safetensors/safetensors_header.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

constexpr const char* version_key = "kolo.writer.version";
constexpr int checkpoint_version = 1;
constexpr const char* step_key = "kolo.step";
constexpr const char* metric_key = "kolo.metric";
constexpr const char* serial_key = "kolo.serial";
constexpr const char* ranks_key = "kolo.ranks";
constexpr const char* files_key = "kolo.files";
constexpr const char* save_key = "kolo.key";
constexpr int max_ranks = 1 << 20;

// Returns the number under this key of the metadata; nothing without the key. Throws
// SafetensorsFault for text that is not a number.
template <typename Number>
std::optional<Number> number_of(const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const std::string& text = found->second;
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stopped == end) return number;
  throw SafetensorsFault(
      CheckpointFault::corrupt,
      fmt::format("is corrupt: its metadata '{}' is '{}', which is no number", key, shown(text)));
}

// Throws SafetensorsFault for a file of a version that this library does not know.
void require_known_version(const Metadata& metadata) {
  const auto its_version = number_of<int>(metadata, version_key);
  if (!its_version || *its_version == checkpoint_version) return;
  throw SafetensorsFault(CheckpointFault::foreign,
                         fmt::format("is of version {}; this library reads version {}",
                                     *its_version, checkpoint_version));
}

// Returns a number of ranks or files; 0 without the key.
int count_from(const Metadata& metadata, const char* key) {
  const int count = number_of<int>(metadata, key).value_or(0);
  if (count >= 0 && count <= max_ranks) return count;
  throw SafetensorsFault(CheckpointFault::corrupt,
                         fmt::format("is corrupt: its '{}' is {}", key, count));
}

}  // namespace

void require_checksums(const Metadata& metadata) {
  for (const std::string_view key : {header_checksum_key, data_checksum_key})
    if (metadata.contains(version_key) && !metadata.contains(std::string(key)))
      throw SafetensorsFault(CheckpointFault::corrupt, "is corrupt: it has no checksum");
}

CheckpointHeader header_from(const Metadata& metadata) {
  require_known_version(metadata);
  const auto step = number_of<std::int64_t>(metadata, step_key);
  if (!step) {
    throw SafetensorsFault(
        CheckpointFault::foreign,
        fmt::format("is not a Kolo checkpoint: its metadata has no '{}' (weights "
                    "alone are read by kolo::load_safetensors)",
                    step_key));
  }
  CheckpointHeader header{.step = *step, .metric = number_of<double>(metadata, metric_key)};
  header.serial = number_of<std::uint32_t>(metadata, serial_key).value_or(0);
  if (header.step < 0 || header.serial > max_serial)
    throw SafetensorsFault(CheckpointFault::corrupt,
                           "is corrupt: its step or serial is impossible");
  header.ranks = count_from(metadata, ranks_key);
  header.files = count_from(metadata, files_key);
  if (const auto key = metadata.find(save_key); key != metadata.end()) header.key = key->second;
  return header;
}

Metadata metadata_of(const CheckpointHeader& header) {
  Metadata metadata{{version_key, std::to_string(checkpoint_version)},
                    {step_key, std::to_string(header.step)},
                    {ranks_key, std::to_string(header.ranks)},
                    {files_key, std::to_string(header.files)},
                    {save_key, header.key}};
  if (header.serial > 0) metadata[serial_key] = std::to_string(header.serial);
  if (header.metric) metadata[metric_key] = fmt::format("{}", *header.metric);
  return metadata;
}

}  // namespace kolo::internal
