// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "kolo/error.hpp"
#include "training/checkpoint/strict_json.hpp"

namespace kolo::internal {
namespace {

constexpr std::string_view own_start = "own.";
constexpr std::string_view empty_name = "%";

std::string escape(const std::string& part) {
  if (part.empty()) return std::string(empty_name);
  const bool reserved = part == "own" || part == "kolo" || part == "__metadata__";
  std::string text;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const char c = part[i];
    const bool plain = c >= ' ' && c <= '~' && c != '%' && c != '.' && !(reserved && i == 0);
    text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

// Text that `escape` never writes is taken as it is: other programs know nothing of this.
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

// The owner of a name of the file. Ranks come after the parts that all share.
struct Owner {
  int rank = -1;  // -1: shared
  std::string part{};

  friend auto operator<=>(const Owner&, const Owner&) = default;
};

struct Name {
  Owner owner{};
  std::optional<std::string> rest{};  // after the part
};

[[noreturn]] void refuse_name(const std::string& name) {
  throw SafetensorsFault(
      CheckpointFault::foreign,
      fmt::format("has the tensor '{}', which belongs to no part: its name must be '<part>.<name>'",
                  shown(name)));
}

// Nothing if it is not the name of a part, or of a rank that there is not.
std::optional<Name> split(std::string_view text, int ranks) {
  Name name;
  if (text.starts_with(own_start)) {
    text.remove_prefix(own_start.size());
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, name.owner.rank);
    if (error != std::errc() || stopped == end || *stopped != '.') return std::nullopt;
    if (name.owner.rank < 0 || name.owner.rank >= ranks) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stopped - text.data()) + 1);
  }
  const std::size_t dot = text.find('.');
  name.owner.part = unescape(text.substr(0, dot));
  if (dot != std::string_view::npos) name.rest = text.substr(dot + 1);
  return name;
}

// The header of a part that is a safetensors file as `to_safetensors` writes it. Nothing for one
// that is not, or that reading would write otherwise: the part must come back byte for byte.
std::optional<SafetensorsHeader> header_of(std::string_view bytes, std::string_view& data) {
  try {
    SafetensorsHeader header = parse_file(bytes, data);
    const std::size_t start = bytes.size() - data.size();
    lay_out(header);
    if (header.tensors.empty() && header.metadata.empty()) return std::nullopt;
    if (print_header(header) != bytes.substr(0, start)) return std::nullopt;
    return header;
  } catch (const SafetensorsFault&) {
    return std::nullopt;
  }
}

using DataByName = std::map<std::string, std::string_view>;

void add_parts(const std::string& start, const Blobs& parts, SafetensorsHeader& file,
               DataByName& data) {
  for (const auto& [part, bytes] : parts) {
    const std::string name = start + escape(part);
    std::string_view part_data;
    const auto header = header_of(bytes, part_data);
    if (!header) {
      file.tensors.push_back({.name = name, .dtype = DType::u8, .shape = {bytes.size()}});
      data[name] = bytes;
      continue;
    }
    for (const TensorEntry& entry : header->tensors) {
      const std::string whole = name + '.' + entry.name;
      file.tensors.push_back({.name = whole, .dtype = entry.dtype, .shape = entry.shape});
      data[whole] = part_data.substr(entry.begin, entry.end - entry.begin);
    }
    for (const auto& [key, text] : header->metadata) file.metadata[name + '.' + key] = text;
  }
}

// One part while its room is made.
struct PartRoom {
  std::optional<std::uint64_t> bytes{};  // of a part that is not a set of tensors
  std::size_t bytes_at = 0;              // its place among the file's tensors
  SafetensorsHeader header{};
  std::map<std::string, std::size_t> places{};  // of its tensors, by name
};

using PartRooms = std::map<Owner, PartRoom>;

PartRooms parts_of(const SafetensorsHeader& file, int ranks) {
  PartRooms parts;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const TensorEntry& entry = file.tensors[i];
    const auto name = split(entry.name, ranks);
    if (!name) refuse_name(entry.name);
    PartRoom& part = parts[name->owner];
    if (name->rest) {
      if (name->rest == "__metadata__") refuse_name(entry.name);  // no part has such a tensor
      part.header.tensors.push_back(
          {.name = *name->rest, .dtype = entry.dtype, .shape = entry.shape});
      if (part.places.emplace(*name->rest, i).second && !part.bytes) continue;
    } else {
      if (entry.dtype != DType::u8 || entry.shape.dimensions() != 1) refuse_name(entry.name);
      if (!part.bytes && part.places.empty()) {
        part.bytes = entry.end - entry.begin;
        part.bytes_at = i;
        continue;
      }
    }
    throw SafetensorsFault(
        CheckpointFault::corrupt,
        fmt::format("is corrupt: it has the part '{}' twice", shown(name->owner.part)));
  }
  for (const auto& [key, text] : file.metadata) {
    const auto name = split(key, ranks);
    if (!name || !name->rest || key.starts_with("kolo.")) continue;
    PartRoom& part = parts[name->owner];
    if (!part.bytes) part.header.metadata[*name->rest] = text;
  }
  return parts;
}

}  // namespace

CheckpointTensors to_tensors(const Blobs& parts, const std::vector<Blobs>& own) {
  CheckpointTensors tensors;
  DataByName data;
  add_parts("", parts, tensors.header, data);
  for (std::size_t rank = 0; rank < own.size(); ++rank)
    add_parts(fmt::format("{}{}.", own_start, rank), own[rank], tensors.header, data);
  lay_out(tensors.header);
  for (const TensorEntry& entry : tensors.header.tensors)
    tensors.data.push_back(data.at(entry.name));
  return tensors;
}

CheckpointRoom make_room(const SafetensorsHeader& header, int ranks) {
  CheckpointRoom room;
  room.payload.own.resize(static_cast<std::size_t>(ranks));
  room.places.resize(header.tensors.size());
  for (auto& [owner, part] : parts_of(header, ranks)) {
    Blobs& blobs = owner.rank < 0 ? room.payload.parts
                                  : room.payload.own[static_cast<std::size_t>(owner.rank)];
    std::string& bytes = blobs[owner.part];
    if (part.bytes) {
      bytes.resize(*part.bytes);
      room.places[part.bytes_at] = bytes.data();
      continue;
    }
    lay_out(part.header);
    bytes = print_header(part.header);
    const std::size_t start = bytes.size();
    bytes.resize(start + part.header.data_bytes());
    for (const TensorEntry& entry : part.header.tensors)
      room.places[part.places.at(entry.name)] = bytes.data() + start + entry.begin;
  }
  return room;
}

}  // namespace kolo::internal
