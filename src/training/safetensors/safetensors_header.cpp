// SPDX-License-Identifier: Apache-2.0
#include "training/safetensors/safetensors_header.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "training/bytes.hpp"
#include "training/require.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t number_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t max_json_bytes = 100'000'000;  // as in the format's own library
constexpr std::size_t alignment = 8;
constexpr std::string_view metadata_name = "__metadata__";
constexpr std::string_view no_checksum = "00000000";

[[noreturn]] void corrupt(const std::string& why) {
  throw SafetensorsFault(CheckpointFault::corrupt, "is corrupt: " + why);
}

std::uint64_t natural(const json& value, const std::string& name, const char* what) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    corrupt(fmt::format("the {} of tensor '{}' are not natural numbers", what, shown(name)));
  }
  return value.get<std::uint64_t>();
}

// The size of a tensor in bytes; nothing if it is above 2^63 - 1.
std::optional<std::int64_t> bytes_of(DType dtype, const Shape& shape) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t length : shape.lengths())
    if (__builtin_mul_overflow(bytes, length, &bytes)) return std::nullopt;
  return bytes;
}

const json& member_of(const json& tensor, const char* key, const std::string& name) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) corrupt(fmt::format("tensor '{}' has no {}", shown(name), key));
  return *found;
}

DType dtype_from(const json& value, const std::string& name) {
  if (!value.is_string()) corrupt(fmt::format("the dtype of tensor '{}' is no text", shown(name)));
  const auto& text = value.get_ref<const std::string&>();
  const auto* const found = std::ranges::find(dtype_table, text, &DTypeTraits::safetensors_name);
  if (found != dtype_table.end()) return found->type;
  throw SafetensorsFault(CheckpointFault::foreign,
                         fmt::format("has the tensor '{}' of dtype {}, which Kolo does not have",
                                     shown(name), shown(text)));
}

TensorEntry entry_of(const std::string& name, const json& tensor) {
  if (!tensor.is_object()) corrupt(fmt::format("tensor '{}' is no object", shown(name)));
  TensorEntry entry{.name = name, .dtype = dtype_from(member_of(tensor, "dtype", name), name)};
  const json& shape = member_of(tensor, "shape", name);
  const json& offsets = member_of(tensor, "data_offsets", name);
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    corrupt(fmt::format("tensor '{}' has no valid shape and offsets", shown(name)));
  std::vector<std::int64_t> lengths;
  for (const json& length : shape)
    lengths.push_back(static_cast<std::int64_t>(natural(length, name, "lengths")));
  entry.shape = Shape(lengths);
  entry.begin = natural(offsets[0], name, "offsets");
  entry.end = natural(offsets[1], name, "offsets");
  const auto bytes = bytes_of(entry.dtype, entry.shape);
  if (!bytes || entry.end < entry.begin ||
      entry.end - entry.begin != static_cast<std::uint64_t>(*bytes)) {
    corrupt(fmt::format("tensor '{}', {} {}, has the offsets {} to {}", shown(name),
                        to_string(entry.dtype), shown(to_string(entry.shape)), entry.begin,
                        entry.end));
  }
  return entry;
}

Metadata metadata_of(const json& object) {
  Metadata metadata;
  if (object.is_null()) return metadata;  // as the format's own library reads it
  if (!object.is_object()) corrupt("its metadata is no object");
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) corrupt(fmt::format("its metadata '{}' is no text", shown(key)));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void require_coverage(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != end)
      corrupt(fmt::format("tensor '{}' begins at {}, but the tensors before it end at {}",
                          shown(entry.name), entry.begin, end));
    end = entry.end;
  }
  if (end > data_bytes) {
    throw SafetensorsFault(
        CheckpointFault::truncated,
        fmt::format("is truncated: it has {} of {} bytes of data", data_bytes, end));
  }
  if (end < data_bytes)
    corrupt(fmt::format("it has {} bytes of data instead of {}", data_bytes, end));
}

json parse_object(std::string_view text) {
  try {
    json object = parse_strict_json(text);
    if (object.is_object()) return object;
    corrupt("its header is no object");
  } catch (const JsonFault& fault) {
    corrupt(fmt::format("its header {}", fault.what()));
  }
}

// The position of the digits of the header's checksum in the JSON; npos without a checksum.
std::size_t checksum_place(std::string_view text) {
  const std::string before = fmt::format("\"{}\":\"", header_checksum_key);
  const std::size_t found = text.find(before);
  if (found == std::string_view::npos) return found;
  const std::size_t place = found + before.size();
  return place + no_checksum.size() <= text.size() ? place : std::string_view::npos;
}

std::string header_checksum(std::string_view text, std::size_t place) {
  std::uint32_t checksum = crc32(text.substr(0, place));
  checksum = crc32(no_checksum, checksum);
  return print_checksum(crc32(text.substr(place + no_checksum.size()), checksum));
}

}  // namespace

std::string print_checksum(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

std::uint64_t header_length(std::string_view start, std::uint64_t total) {
  const auto not_safetensors = [] {
    throw SafetensorsFault(CheckpointFault::foreign, "is not a safetensors file");
  };
  if (start.size() >= number_bytes && from_little_endian<std::uint64_t>(start) > max_json_bytes)
    not_safetensors();
  if (start.size() >= header_start_bytes && start[number_bytes] != '{') not_safetensors();
  const std::uint64_t length =
      start.size() >= number_bytes ? from_little_endian<std::uint64_t>(start) : 0;
  if (start.size() < header_start_bytes || length > total - number_bytes) {
    throw SafetensorsFault(CheckpointFault::truncated,
                           fmt::format("is truncated: it has {} bytes, its header alone has {}",
                                       total, number_bytes + length));
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes) {
  // The checksum is verified before anything in the header is believed.
  const std::size_t place = checksum_place(text);
  if (place != std::string_view::npos &&
      text.substr(place, no_checksum.size()) != header_checksum(text, place)) {
    corrupt(
        "the checksum of its header is wrong (a program that changes the file must remove the "
        "metadata whose names begin with 'kolo.writer.')");
  }
  const json object = parse_object(text);
  SafetensorsHeader header;
  for (const auto& [name, value] : object.items()) {
    if (name == metadata_name) {
      header.metadata = metadata_of(value);
    } else {
      header.tensors.push_back(entry_of(name, value));
    }
  }
  std::ranges::sort(header.tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  require_coverage(header, data_bytes);
  if (place == std::string_view::npos && header.metadata.contains(std::string(header_checksum_key)))
    corrupt("the checksum of its header is not where Kolo writes it");
  return header;
}

void lay_out(SafetensorsHeader& header) {
  // Tensors with larger elements come first, so that all elements are aligned to their own size.
  std::ranges::sort(header.tensors, [](const TensorEntry& a, const TensorEntry& b) {
    const std::size_t size_a = size_of(a.dtype), size_b = size_of(b.dtype);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  std::uint64_t end = 0;
  for (TensorEntry& entry : header.tensors) {
    const auto lengths = entry.shape.lengths();
    const auto bytes = bytes_of(entry.dtype, entry.shape);
    require(bytes && std::ranges::all_of(lengths, [](std::int64_t one) { return one >= 0; }),
            "tensor '{}' has the shape {}", entry.name, to_string(entry.shape));
    entry.begin = end;
    end += static_cast<std::uint64_t>(*bytes);
    entry.end = end;
  }
}

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // zlib takes a null pointer for the start of a new checksum
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string print_header(const SafetensorsHeader& header) {
  json object = json::object();
  if (!header.metadata.empty()) {
    object[metadata_name] = header.metadata;
    if (header.metadata.contains(std::string(header_checksum_key)))
      object[metadata_name][header_checksum_key] = no_checksum;
  }
  for (const TensorEntry& entry : header.tensors) {
    require(entry.name != metadata_name, "a tensor cannot be named '{}'", metadata_name);
    json tensor{{"dtype", traits_of(entry.dtype).safetensors_name},
                {"shape", json::array()},
                {"data_offsets", {entry.begin, entry.end}}};
    for (const std::int64_t length : entry.shape.lengths()) tensor["shape"].push_back(length);
    require(object.emplace(entry.name, std::move(tensor)).second, "two tensors are named '{}'",
            entry.name);
  }
  std::string text;
  try {
    text = object.dump();
  } catch (const json::exception&) {
    throw InvalidArgument("the name of a tensor, or metadata, is not UTF-8");
  }
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  require(text.size() <= max_json_bytes, "the names of {} tensors are too long for one file",
          header.tensors.size());
  const std::size_t place = checksum_place(text);
  if (place != std::string_view::npos)
    text.replace(place, no_checksum.size(), header_checksum(text, place));
  std::string bytes;
  bytes.reserve(number_bytes + text.size());
  append_little_endian(bytes, std::uint64_t{text.size()});
  return bytes += text;
}

}  // namespace kolo::internal
