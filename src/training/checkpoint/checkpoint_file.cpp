// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>
#include <utility>

#include "training/bytes.hpp"
#include "training/checkpoint/checkpoint_tensors.hpp"
#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/safetensors_file.hpp"
#include "training/checkpoint/strict_json.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* version_key = "kolo.writer.version";
constexpr int checkpoint_version = 1;
constexpr const char* step_key = "kolo.step";
constexpr const char* metric_key = "kolo.metric";
constexpr const char* serial_key = "kolo.serial";
constexpr const char* ranks_key = "kolo.ranks";
constexpr int max_ranks = 1 << 20;

// The number of this name in the metadata; nothing if there is none. Throws SafetensorsFault.
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

// A damaged file that Kolo wrote must not pass as the work of another program.
void require_checksums(const Metadata& metadata) {
  const auto its_version = number_of<int>(metadata, version_key);
  if (!its_version) return;
  if (*its_version != checkpoint_version) {
    throw SafetensorsFault(CheckpointFault::foreign,
                           fmt::format("is of version {}; this library reads version {}",
                                       *its_version, checkpoint_version));
  }
  for (const std::string_view key : {header_checksum_key, data_checksum_key})
    if (!metadata.contains(std::string(key)))
      throw SafetensorsFault(CheckpointFault::corrupt, "is corrupt: it has no checksum");
}

CheckpointHeader header_from(const Metadata& metadata) {
  require_checksums(metadata);
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
  return header;
}

int ranks_from(const Metadata& metadata) {
  const int ranks = number_of<int>(metadata, ranks_key).value_or(0);
  if (ranks >= 0 && ranks <= max_ranks) return ranks;
  throw SafetensorsFault(CheckpointFault::corrupt,
                         fmt::format("is corrupt: it states {} ranks", ranks));
}

Metadata metadata_for(const CheckpointHeader& header, std::size_t ranks) {
  // Other programs ask for the format: that of PyTorch's names.
  Metadata metadata{{"format", "pt"},
                    {version_key, std::to_string(checkpoint_version)},
                    {std::string(header_checksum_key), ""},
                    {std::string(data_checksum_key), ""},
                    {step_key, std::to_string(header.step)},
                    {serial_key, std::to_string(header.serial)},
                    {ranks_key, std::to_string(ranks)}};
  if (header.metric) metadata[metric_key] = fmt::format("{}", *header.metric);
  return metadata;
}

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // null would begin anew
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void write_checkpoint(const fs::path& path, const CheckpointHeader& header, const Blobs& parts,
                      const std::vector<Blobs>& own) {
  CheckpointTensors tensors = to_tensors(parts, own);
  tensors.header.metadata.merge(metadata_for(header, own.size()));
  write_safetensors(path, checkpoint_kind, std::move(tensors.header), tensors.data);
}

CheckpointHeader read_checkpoint_header(const fs::path& path) {
  File file = open_to_read(path, checkpoint_kind);
  try {
    return header_from(read_header(file).metadata);
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

CheckpointContents read_checkpoint(const fs::path& path) {
  File file = open_to_read(path, checkpoint_kind);
  try {
    const SafetensorsHeader header = read_header(file);
    CheckpointContents contents{.header = header_from(header.metadata)};
    CheckpointRoom room = make_room(header, ranks_from(header.metadata));
    read_data(file, header, room.places);
    contents.payload = std::move(room.payload);
    return contents;
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

}  // namespace kolo::internal
