// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "training/bytes.hpp"
#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/safetensors.hpp"
#include "training/checkpoint/strict_json.hpp"
#include "training/require.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* checkpoint_kind = "checkpoint";
constexpr const char* version_key = "kolo.writer.version";
constexpr int checkpoint_version = 1;
constexpr const char* step_key = "kolo.step";
constexpr const char* metric_key = "kolo.metric";
constexpr const char* serial_key = "kolo.serial";
constexpr const char* ranks_key = "kolo.ranks";
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

// Throws SafetensorsFault if a file that Kolo wrote has lost a checksum. Otherwise a damaged file
// could pass as one of another program, which needs none.
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
  // "pt", for PyTorch's names of tensors, is the format that other programs look for.
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

// The prefix of the names of per-rank parts.
constexpr std::string_view per_rank_start = "per_rank.";
constexpr std::string_view empty_name = "%";

std::string escape(const std::string& part) {
  if (part.empty()) return std::string(empty_name);
  const bool reserved = part == "per_rank" || part == "kolo" || part == "__metadata__";
  std::string text;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const char c = part[i];
    const bool plain = c >= ' ' && c <= '~' && c != '%' && c != '.' && !(reserved && i == 0);
    text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

// Undoes `escape`. Text that `escape` never writes stays as it is, because other programs do not
// escape.
std::string unescape(std::string_view text) {
  if (text == empty_name) return {};
  std::string part;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      part += static_cast<char>(byte);
      i += 2;
    } else {
      part += text[i];
    }
  }
  return part;
}

// The name of a tensor or metadata entry of the file, split into the part and the name in the part.
struct PartEntry {
  int rank = -1;  // -1: a shared part
  std::string part{};
  std::optional<std::string> name{};  // none: the part is text
};

[[noreturn]] void refuse_name(const std::string& name) {
  throw SafetensorsFault(
      CheckpointFault::foreign,
      fmt::format("has the tensor '{}', which belongs to no part: its name must be '<part>.<name>'",
                  shown(name)));
}

// Splits a name. Returns nothing if it starts like the name of a per-rank part but has no valid
// rank after that: a number below `ranks` and a dot.
std::optional<PartEntry> split(std::string_view text, int ranks) {
  PartEntry entry;
  if (text.starts_with(per_rank_start)) {
    text.remove_prefix(per_rank_start.size());
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, entry.rank);
    if (error != std::errc() || stopped == end || *stopped != '.') return std::nullopt;
    if (entry.rank < 0 || entry.rank >= ranks) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stopped - text.data()) + 1);
  }
  const std::size_t dot = text.find('.');
  entry.part = unescape(text.substr(0, dot));
  if (dot != std::string_view::npos) entry.name = text.substr(dot + 1);
  return entry;
}

NamedStates& parts_of(CheckpointContents& contents, int rank) {
  return rank < 0 ? contents.parts : contents.per_rank[static_cast<std::size_t>(rank)];
}

bool is_text(const std::string& name, DType dtype, const Shape& shape) {
  return name.empty() && dtype == DType::u8 && shape.dimensions() == 1;
}

void add_parts(const NamedStates& parts, StateViews& file) {
  for (const auto& [part, state] : parts) {
    const std::string start = escape(part);
    for (const auto& [name, tensor] : state.tensors) {
      require(name != "__metadata__", "the part '{}' has a tensor with the reserved name '{}'",
              part, name);
      file.tensors.emplace(is_text(name, tensor.dtype, tensor.shape) ? start : start + '.' + name,
                           tensor.view());
    }
    for (const auto& [key, text] : state.metadata) file.metadata[start + '.' + key] = text;
    // An empty part is written as an empty tensor, so that reading the file returns it too.
    if (state.empty()) file.tensors.emplace(start, ConstTensorView("", Shape{0}, DType::u8));
  }
}

void add_tensors(CheckpointContents& contents, StateDict& file) {
  const auto ranks = static_cast<int>(contents.per_rank.size());
  for (auto& [full_name, tensor] : file.tensors) {
    const auto entry = split(full_name, ranks);
    if (!entry || entry->name == "__metadata__") refuse_name(full_name);
    const std::string name = entry->name.value_or("");
    if (!entry->name && !is_text(name, tensor.dtype, tensor.shape)) refuse_name(full_name);
    StateDict& part = parts_of(contents, entry->rank)[entry->part];
    if (tensor.bytes.empty() && is_text(name, tensor.dtype, tensor.shape)) continue;
    if (!part.tensors.emplace(name, std::move(tensor)).second)
      throw SafetensorsFault(
          CheckpointFault::corrupt,
          fmt::format("is corrupt: it has the part '{}' twice", shown(entry->part)));
  }
  for (auto& [key, text] : file.metadata) {
    const auto entry = split(key, ranks);
    if (!entry || !entry->name || key.starts_with("kolo.")) continue;
    parts_of(contents, entry->rank)[entry->part].metadata[*entry->name] = std::move(text);
  }
}

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // zlib takes a null pointer for the start of a new checksum
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string encode_parts(const NamedStates& parts) {
  StateViews file;
  add_parts(parts, file);
  return write_safetensors(file);
}

void write_checkpoint(const fs::path& path, const CheckpointHeader& header,
                      const NamedStates& parts, const std::vector<std::string>& per_rank) {
  StateViews file{.metadata = metadata_for(header, per_rank.size())};
  add_parts(parts, file);
  for (std::size_t rank = 0; rank < per_rank.size(); ++rank) {
    if (per_rank[rank].empty()) continue;
    const StateViews received = view_safetensors(per_rank[rank]);
    const std::string start = fmt::format("{}{}.", per_rank_start, rank);
    for (const auto& [name, view] : received.tensors) file.tensors.emplace(start + name, view);
    for (const auto& [key, text] : received.metadata) file.metadata[start + key] = text;
  }
  write_safetensors(path, checkpoint_kind, file);
}

CheckpointHeader read_checkpoint_header(const fs::path& path) {
  File file = open_to_read(path, checkpoint_kind);
  try {
    const auto read = [&](char* into, std::size_t bytes) { file.read(into, bytes); };
    return header_from(read_header(file.size(), read).metadata);
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

std::string read_checkpoint(const fs::path& path) {
  // The header is read first, so that a large file of another kind is refused before it is read.
  static_cast<void>(read_checkpoint_header(path));
  File file = open_to_read(path, checkpoint_kind);
  return file.read(file.size());
}

CheckpointContents parse_checkpoint(const fs::path& path, const std::string& bytes) {
  try {
    StateDict file = read_safetensors(bytes);
    CheckpointContents contents{.header = header_from(file.metadata)};
    contents.per_rank.resize(static_cast<std::size_t>(ranks_from(file.metadata)));
    add_tensors(contents, file);
    return contents;
  } catch (const SafetensorsFault& fault) {
    throw CheckpointError(fault.fault(), path,
                          fmt::format("{} '{}' {}", checkpoint_kind, path.string(), fault.what()));
  }
}

}  // namespace kolo::internal
