// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "training/bytes.hpp"
#include "training/checkpoint/part_names.hpp"
#include "training/safetensors/disk_file.hpp"
#include "training/safetensors/index_files.hpp"
#include "training/safetensors/safetensors.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* checkpoint_kind = "checkpoint";
// Larger sets do not keep their files open.
constexpr std::size_t max_open_files = 64;

[[noreturn]] void refuse(const fs::path& path, CheckpointFault fault, const std::string& why) {
  throw CheckpointError(fault, path,
                        fmt::format("{} '{}' {}", checkpoint_kind, path.string(), why));
}

// Throws a CheckpointError in place of a SafetensorsFault.
template <typename Work>
auto about(const fs::path& path, const Work& work) {
  try {
    return work();
  } catch (const SafetensorsFault& fault) {
    refuse(path, fault.fault(), fault.what());
  }
}

StateView view_file(const fs::path& path, bool keeps_open) {
  StateView state = view_safetensors(path, checkpoint_kind, keeps_open);
  about(path, [&] { require_checksums(state.metadata); });
  return state;
}

void require_same_save(const fs::path& path, const StateView& file,
                       const CheckpointHeader& wanted) {
  const CheckpointHeader found = about(path, [&] { return header_from(file.metadata); });
  if (found.key != wanted.key || found.step != wanted.step || found.ranks != wanted.ranks ||
      found.files != wanted.files)
    refuse(path, CheckpointFault::corrupt, "belongs to another checkpoint than its index");
}

std::string identity_of(const CheckpointHeader& header, const Metadata& metadata) {
  std::string text = header.key;
  for (const auto& [key, value] : metadata) text += '\0' + key + '\0' + value;
  return print_checksum(crc32(text)) + header.key;
}

CheckpointHeader header_in(const fs::path& folder, const SafetensorsIndex& index) {
  return about(folder, [&] { return header_from(index.metadata); });
}

CheckpointSet find_in_folder(const fs::path& folder) {
  const SafetensorsIndex index = read_index(folder / safetensors_index_name);
  CheckpointSet set{.path = folder, .header = header_in(folder, index), .files = index.files};
  for (const auto& [tensor, file] : index.file_of) set.tensors.push_back(tensor);
  set.identity = identity_of(set.header, index.metadata);
  if (set.header.files > 0) set.files.clear();
  for (int number = 0; number < set.header.files; ++number)
    set.files.push_back(checkpoint_file(folder, number, set.header.files));
  for (const fs::path& file : set.files) {
    std::error_code error;
    if (fs::exists(file, error)) continue;
    refuse(folder, CheckpointFault::missing,
           fmt::format("lacks its file '{}'", file.filename().string()));
  }
  return set;
}

}  // namespace

fs::path checkpoint_file(const fs::path& folder, int number, int files) {
  return folder / fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, files);
}

void write_checkpoint_file(const fs::path& path, const CheckpointHeader& header, StateView state) {
  for (auto& [key, text] : metadata_of(header)) state.metadata[key] = text;
  // "pt", for PyTorch's names of tensors, is the format that other programs look for.
  state.metadata["format"] = "pt";
  for (const std::string_view key : {header_checksum_key, data_checksum_key})
    state.metadata[std::string(key)] = "";
  write_safetensors(path, checkpoint_kind, state);
}

void write_checkpoint_index(const fs::path& folder, const CheckpointHeader& header) {
  SafetensorsIndex index{.metadata = metadata_of(header)};
  index.metadata[std::string(index_checksum_key)] = "";
  for (int number = 0; number < header.files; ++number) {
    const fs::path file = checkpoint_file(folder, number, header.files);
    const StateView state = view_file(file, false);
    require_same_save(file, state, header);
    for (const auto& [name, tensor] : state.tensors) {
      index.bytes += tensor.bytes();
      if (!index.file_of.emplace(name, file.filename().string()).second)
        refuse(file, CheckpointFault::corrupt,
               fmt::format("has the tensor '{}' of another file", name));
    }
  }
  const fs::path path = folder / safetensors_index_name;
  const std::string text = to_text(index);
  if (text.size() > max_index_bytes)
    refuse(path, CheckpointFault::io,
           fmt::format("would have {} bytes: there are too many tensors", text.size()));
  write_file(path, checkpoint_kind, [&](File& file) { file.write(text); });
}

CheckpointHeader read_checkpoint_header(const fs::path& folder) {
  return header_in(folder, read_index(folder / safetensors_index_name));
}

CheckpointSet find_checkpoint(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (path.filename() == safetensors_index_name) return find_in_folder(parent);
  std::error_code error;
  if (fs::is_directory(path, error)) return find_in_folder(path);
  CheckpointSet set{.path = path, .files = {path}};
  const StateView state = view_file(path, false);
  set.header = about(path, [&] { return header_from(state.metadata); });
  if (set.header.files > 1) return find_in_folder(parent);
  set.identity =
      fmt::format("{} {}", identity_of(set.header, state.metadata), fs::file_size(path, error));
  return set;
}

StateView view_checkpoint(const CheckpointSet& set) {
  StateView all;
  for (const fs::path& path : set.files) {
    StateView file = view_file(path, set.files.size() <= max_open_files);
    if (set.header.files > 0) require_same_save(path, file, set.header);
    all.metadata.merge(file.metadata);
    all.tensors.merge(file.tensors);  // leaves tensors with known names in `file`
    if (!file.tensors.empty())
      refuse(path, CheckpointFault::corrupt,
             fmt::format("has the tensor '{}' of another file", file.tensors.begin()->first));
  }
  for (const std::string& name : set.tensors)
    if (!all.tensors.contains(name))
      refuse(set.path, CheckpointFault::corrupt, fmt::format("lacks the tensor '{}'", name));
  return all;
}

Parts parts_in(const CheckpointSet& set, const StateView& view) {
  return about(set.path, [&] { return split_into_parts(view, set.header.ranks); });
}

void verify_checkpoint_file(const fs::path& file) { verify_safetensors(file, checkpoint_kind); }

}  // namespace kolo::internal
