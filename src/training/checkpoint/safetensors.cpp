// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint/safetensors_file.hpp"
#include "training/checkpoint/safetensors_index.hpp"
#include "training/checkpoint/safetensors_names.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace fs = std::filesystem;

constexpr const char* file_kind = "safetensors file";

struct Laid {
  SafetensorsHeader header{};
  std::vector<std::string_view> data{};
};

void require_cpu(const std::string& name, const Device& device) {
  require(device.type == DeviceType::cpu, "tensor '{}' is on a GPU; copy it to the CPU's memory",
          name);
}

Laid lay_out_views(const ConstTensorViews& tensors, const Metadata& metadata) {
  Laid laid{.header = {.metadata = metadata}};
  for (const auto& [name, view] : tensors) {
    require_cpu(name, view.device());
    laid.header.tensors.push_back({.name = name, .dtype = view.dtype(), .shape = view.shape()});
  }
  lay_out(laid.header);
  for (const TensorEntry& entry : laid.header.tensors)
    laid.data.emplace_back(static_cast<const char*>(tensors.at(entry.name).data()),
                           entry.end - entry.begin);
  return laid;
}

// Where the data of each tensor goes: into new tensors of `result`.
std::vector<char*> make_tensors(const SafetensorsHeader& header, Safetensors& result,
                                const fs::path& path) {
  std::vector<char*> places;
  for (const TensorEntry& entry : header.tensors) {
    const auto [found, is_new] = result.tensors.try_emplace(
        entry.name, StoredTensor{.dtype = entry.dtype,
                                 .shape = entry.shape,
                                 .bytes = std::string(entry.end - entry.begin, '\0')});
    if (!is_new)
      throw CheckpointError(
          CheckpointFault::corrupt, path,
          fmt::format("safetensors file '{}' has the tensor '{}' of another file of its set",
                      path.string(), entry.name));
    places.push_back(found->second.bytes.data());
  }
  return places;
}

void load_one(const fs::path& path, Safetensors& result) {
  File file = open_to_read(path, file_kind);
  SafetensorsHeader header = read_header(file);
  read_data(file, header, make_tensors(header, result, path));
  result.metadata.merge(header.metadata);
}

std::size_t size_in_bytes(const ConstTensorView& view) {
  return static_cast<std::size_t>(view.elements()) * size_of(view.dtype());
}

void copy_elements(const ConstTensorView& from, const TensorView& to) {
  if (size_in_bytes(from) > 0) std::memcpy(to.data(), from.data(), size_in_bytes(from));
}

// `where` is for messages.
UnmatchedNames copy_by_name(const std::string& where, const ConstTensorViews& from,
                            const TensorViews& into, const SafetensorsOptions& options) {
  MatchedNames matched = match_names(where, names_of(into), names_of(from), options);
  for (const auto& [wanted, found] : matched.pairs) {
    const TensorView& to = into.at(wanted);
    const ConstTensorView& source = from.at(found);
    require_cpu(wanted, to.device());
    require(to.dtype() == source.dtype() && to.shape() == source.shape(),
            "{}: tensor '{}' is {} {} in the {} but {} {} in the program", where, found,
            to_string(source.dtype()), to_string(source.shape()), holder_of(where),
            to_string(to.dtype()), to_string(to.shape()));
  }
  // All are checked before the first changes.
  for (const auto& [wanted, found] : matched.pairs) copy_elements(from.at(found), into.at(wanted));
  return std::move(matched.unmatched);
}

}  // namespace

SafetensorsViews internal::parse_safetensors(std::string_view bytes) {
  try {
    std::string_view data;
    SafetensorsHeader header = parse_file(bytes, data);
    const auto stated = header.metadata.find(std::string(data_checksum_key));
    if (stated != header.metadata.end() && stated->second != print_checksum(crc32(data)))
      throw SafetensorsFault(CheckpointFault::corrupt, "has a wrong checksum");
    SafetensorsViews views{.metadata = std::move(header.metadata)};
    for (const TensorEntry& entry : header.tensors)
      views.tensors.emplace(entry.name,
                            ConstTensorView(data.data() + entry.begin, entry.shape, entry.dtype));
    return views;
  } catch (const SafetensorsFault& fault) {
    throw InvalidArgument(
        fmt::format("these bytes are not those of a safetensors file: it {}", fault.what()));
  }
}

std::string to_safetensors(const ConstTensorViews& tensors, const Metadata& metadata) {
  Laid laid = lay_out_views(tensors, metadata);
  set_data_checksum(laid.header, laid.data);
  std::string bytes = print_header(laid.header);
  bytes.reserve(bytes.size() + laid.header.data_bytes());
  for (const std::string_view data : laid.data) bytes += data;
  return bytes;
}

Safetensors from_safetensors(std::string_view bytes) {
  SafetensorsViews views = parse_safetensors(bytes);
  Safetensors result{.metadata = std::move(views.metadata)};
  for (const auto& [name, view] : views.tensors)
    result.tensors.emplace(
        name, StoredTensor{.dtype = view.dtype(),
                           .shape = view.shape(),
                           .bytes = {static_cast<const char*>(view.data()), size_in_bytes(view)}});
  return result;
}

UnmatchedNames from_safetensors(std::string_view bytes, const TensorViews& into,
                                const SafetensorsOptions& options) {
  return copy_by_name("these bytes", parse_safetensors(bytes).tensors, into, options);
}

void save_safetensors(const fs::path& path, const ConstTensorViews& tensors,
                      const Metadata& metadata) {
  Laid laid = lay_out_views(tensors, metadata);
  write_safetensors(path, file_kind, std::move(laid.header), laid.data);
}

Safetensors load_safetensors(const fs::path& path) {
  Safetensors result;
  if (is_index(path)) {
    const SafetensorsIndex index = read_index(path);
    for (const fs::path& file : index.files) load_one(file, result);
    for (const auto& [tensor, file] : index.file_of) {
      if (result.tensors.contains(tensor)) continue;
      throw CheckpointError(CheckpointFault::corrupt, path,
                            fmt::format("safetensors index '{}' is corrupt: it lists tensor '{}' "
                                        "in '{}', which does not have it",
                                        path.string(), tensor, file));
    }
  } else {
    load_one(path, result);
  }
  return result;
}

UnmatchedNames load_safetensors(const fs::path& path, const TensorViews& into,
                                const SafetensorsOptions& options) {
  const Safetensors file = load_safetensors(path);
  ConstTensorViews views;
  for (const auto& [name, tensor] : file.tensors) views.emplace(name, tensor.view());
  return copy_by_name(fmt::format("'{}'", path.string()), views, into, options);
}

}  // namespace kolo
