// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/part_names.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "training/require.hpp"
#include "training/safetensors/safetensors_header.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

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

NamedViews& parts_of(Parts& all, int rank) {
  return rank < 0 ? all.shared : all.per_rank[static_cast<std::size_t>(rank)];
}

bool is_text(const std::string& name, DType dtype, const Shape& shape) {
  return name.empty() && dtype == DType::u8 && shape.dimensions() == 1;
}

StateView flatten(const NamedViews& parts, const std::string& prefix) {
  StateView file;
  for (const auto& [part, state] : parts) {
    const std::string start = prefix + escape(part);
    for (const auto& [name, tensor] : state.tensors) {
      require(name != "__metadata__", "the part '{}' has a tensor with the reserved name '{}'",
              part, name);
      file.tensors.emplace(is_text(name, tensor.dtype, tensor.shape) ? start : start + '.' + name,
                           tensor);
    }
    for (const auto& [key, text] : state.metadata) file.metadata[start + '.' + key] = text;
    // An empty part is written as an empty tensor, so that reading the file returns it too.
    if (state.empty())
      file.tensors.emplace(start, TensorSource(start, ConstTensorView("", Shape{0}, DType::u8)));
  }
  return file;
}

}  // namespace

StateView flatten(const NamedViews& parts) { return flatten(parts, std::string()); }

StateView flatten(const NamedViews& parts, int rank) {
  return flatten(parts, fmt::format("{}{}.", per_rank_start, rank));
}

Parts split_into_parts(const StateView& file, int ranks) {
  Parts parts;
  parts.per_rank.resize(static_cast<std::size_t>(ranks));
  for (const auto& [full_name, tensor] : file.tensors) {
    const auto entry = split(full_name, ranks);
    if (!entry || entry->name == "__metadata__") refuse_name(full_name);
    const std::string name = entry->name.value_or("");
    if (!entry->name && !is_text(name, tensor.dtype, tensor.shape)) refuse_name(full_name);
    StateView& part = parts_of(parts, entry->rank)[entry->part];
    if (tensor.bytes() == 0 && is_text(name, tensor.dtype, tensor.shape)) continue;
    if (!part.tensors.emplace(name, tensor).second)
      throw SafetensorsFault(
          CheckpointFault::corrupt,
          fmt::format("is corrupt: it has the part '{}' twice", shown(entry->part)));
  }
  for (const auto& [key, text] : file.metadata) {
    const auto entry = split(key, ranks);
    if (!entry || !entry->name || key.starts_with("kolo.")) continue;
    parts_of(parts, entry->rank)[entry->part].metadata[*entry->name] = text;
  }
  return parts;
}

}  // namespace kolo::internal
