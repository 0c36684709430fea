// SPDX-License-Identifier: Apache-2.0
#include "training/safetensors/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "training/bytes.hpp"
#include "training/require.hpp"
#include "training/safetensors/disk_file.hpp"
#include "training/safetensors/file_source.hpp"
#include "training/safetensors/index_files.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace fs = std::filesystem;

constexpr const char* file_kind = "safetensors file";

// Pieces of this size are copied, checksummed and written, so that they stay in the cache.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

SafetensorsHeader header_of(const StateView& state) {
  SafetensorsHeader header{.metadata = state.metadata};
  for (const auto& [name, source] : state.tensors)
    header.tensors.push_back({.name = name, .dtype = source.dtype, .shape = source.shape});
  lay_out(header);
  return header;
}

/// Where the bytes of a file go.
struct Output {
  std::function<void(std::string_view)> append;
  std::function<void(std::string_view)> replace_start;  // the first bytes
};

// The checksum of the data is known only after the data was read. Its digits have a fixed length,
// so the header is written first and again at the end.
void write_to(const Output& output, const StateView& state) {
  SafetensorsHeader header = header_of(state);
  const auto stated = header.metadata.find(std::string(data_checksum_key));
  const bool has_checksum = stated != header.metadata.end();
  if (has_checksum) stated->second = print_checksum(0);
  output.append(print_header(header));
  std::string piece(piece_bytes, '\0');
  std::uint32_t checksum = 0;
  for (const TensorEntry& entry : header.tensors) {
    const TensorSource& source = state.tensors.at(entry.name);
    const std::uint64_t bytes = entry.end - entry.begin;
    for (std::uint64_t begin = 0; begin < bytes; begin += piece_bytes) {
      const std::span<char> part(piece.data(), std::min<std::uint64_t>(bytes - begin, piece_bytes));
      source.read(begin, part);
      const std::string_view read(part.data(), part.size());
      if (has_checksum) checksum = crc32(read, checksum);
      output.append(read);
    }
  }
  if (!has_checksum) return;
  stated->second = print_checksum(checksum);
  output.replace_start(print_header(header));
}

StateDict load_one(const fs::path& path) {
  File file = open_to_read(path, file_kind);
  try {
    return read_safetensors(file.size(),
                            [&](char* into, std::size_t bytes) { file.read(into, bytes); });
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

StateDict load_set(const fs::path& path) {
  const SafetensorsIndex index = read_index(path);
  StateDict set;
  const auto key = index.metadata.find("kolo.key");
  for (const fs::path& file : index.files) {
    StateDict one = load_one(file);
    if (key != index.metadata.end() && one.metadata["kolo.key"] != key->second)
      throw CheckpointError(CheckpointFault::corrupt, file,
                            fmt::format("safetensors file '{}' belongs to another save than '{}'",
                                        file.string(), path.string()));
    set.metadata.merge(one.metadata);
    set.tensors.merge(one.tensors);  // leaves tensors with known names in `one`
    if (!one.tensors.empty())
      throw CheckpointError(
          CheckpointFault::corrupt, file,
          fmt::format("safetensors file '{}' has the tensor '{}' of another file of its set",
                      file.string(), one.tensors.begin()->first));
  }
  for (const auto& [tensor, file] : index.file_of) {
    if (set.tensors.contains(tensor)) continue;
    throw CheckpointError(CheckpointFault::corrupt, path,
                          fmt::format("safetensors index '{}' is corrupt: it lists tensor '{}' in "
                                      "'{}', which does not have it",
                                      path.string(), tensor, file));
  }
  return set;
}

// Copies stored tensors into tensors of the program by name. `where` begins messages.
UnmatchedNames copy_by_name(const std::string& where, const StateView& from,
                            const TensorViews& into, const SafetensorsOptions& options) {
  const auto identity = [](const TensorView& tensor) {
    return tensor.elements() > 0 ? tensor.data() : nullptr;
  };
  MatchedNames matched =
      match_names(where, required_names(into, from.tensors, options.prefix, identity),
                  names_of(from.tensors), options);
  for (const auto& [wanted, found] : matched.pairs) {
    const TensorView& to = into.at(wanted);
    const TensorSource& source = from.tensors.at(found);
    require_cpu(wanted, to.device());
    require(to.dtype() == source.dtype && to.shape() == source.shape,
            "{}: tensor '{}' is {} {} in the {} but {} {} in the program", where, found,
            to_string(source.dtype), to_string(source.shape), holder_of(where),
            to_string(to.dtype()), to_string(to.shape()));
  }
  // All tensors are checked before the first one changes.
  for (const auto& [wanted, found] : matched.pairs) {
    const TensorSource& source = from.tensors.at(found);
    source.read(0, {static_cast<char*>(into.at(wanted).data()), source.bytes()});
  }
  return std::move(matched.unmatched);
}

// Prints names for a message: "'a', 'b' and 7 more".
std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t max_listed = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), max_listed); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > max_listed) text += fmt::format(" and {} more", names.size() - max_listed);
  return text;
}

void require_all_matched(const std::string& where, const UnmatchedNames& unmatched,
                         const SafetensorsOptions& options) {
  if (unmatched.missing.empty() && unmatched.unexpected.empty()) return;
  std::string message = where + ": the names of tensors differ.";
  if (!unmatched.missing.empty())
    message +=
        fmt::format(" Missing in the {}: {}.", holder_of(where), list_names(unmatched.missing));
  if (!unmatched.unexpected.empty())
    message += fmt::format(" Unexpected in the {}: {}.", holder_of(where),
                           list_names(unmatched.unexpected));
  if (!options.prefix.empty()) message += fmt::format(" The prefix is '{}'.", options.prefix);
  throw InvalidArgument(message + " Set SafetensorsOptions::strict = false to load the others.");
}

}  // namespace

void internal::write_safetensors(const fs::path& path, const std::string& kind,
                                 const StateView& state) {
  write_file(path, kind, [&](File& file) {
    write_to({.append = [&](std::string_view bytes) { file.write(bytes); },
              .replace_start = [&](std::string_view bytes) { file.write_at(0, bytes); }},
             state);
  });
}

void internal::require_writable(const StateView& state) {
  static_cast<void>(print_header(header_of(state)));
}

SafetensorsHeader internal::read_header(std::uint64_t total, const ReadBytes& read) {
  std::string start(std::min<std::uint64_t>(header_start_bytes, total), '\0');
  read(start.data(), start.size());
  const std::uint64_t length = header_length(start, total);
  // A damaged file may state a length below the part of the JSON that was read already.
  std::string json = start.substr(sizeof(std::uint64_t), length);
  const std::size_t have = json.size();
  json.resize(length);
  read(json.data() + have, length - have);
  return parse_header(json, total - sizeof(std::uint64_t) - length);
}

namespace {

void require_checksum(const SafetensorsHeader& header, std::uint32_t checksum) {
  const auto stated = header.metadata.find(std::string(data_checksum_key));
  if (stated != header.metadata.end() && stated->second != print_checksum(checksum))
    throw SafetensorsFault(CheckpointFault::corrupt,
                           "is corrupt: the checksum of its data is wrong");
}

}  // namespace

StateDict internal::read_safetensors(std::uint64_t total, const ReadBytes& read) {
  SafetensorsHeader header = read_header(total, read);
  StateDict state;
  std::uint32_t checksum = 0;
  for (TensorEntry& entry : header.tensors) {
    std::string& bytes = state.tensors
                             .emplace(std::move(entry.name),
                                      StoredTensor{.dtype = entry.dtype, .shape = entry.shape})
                             .first->second.bytes;
    bytes.resize(entry.end - entry.begin);
    read(bytes.data(), bytes.size());
    checksum = crc32(bytes, checksum);
  }
  require_checksum(header, checksum);
  state.metadata = std::move(header.metadata);
  return state;
}

StateView internal::view_safetensors(const fs::path& path, const std::string& file_kind,
                                     bool keeps_open) {
  File file = open_to_read(path, file_kind);
  const std::uint64_t total = file.size();
  SafetensorsHeader header;
  try {
    header = read_header(total, [&](char* into, std::size_t bytes) { file.read(into, bytes); });
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
  const auto source = std::make_shared<FileSource>(std::move(file), keeps_open);
  StateView state;
  state.metadata = std::move(header.metadata);
  const std::uint64_t start = total - header.data_bytes();
  for (const TensorEntry& entry : header.tensors)
    state.tensors.emplace(entry.name, TensorSource(entry.dtype, entry.shape,
                                                   [source, offset = start + entry.begin](
                                                       std::uint64_t begin, std::span<char> into) {
                                                     source->read(offset + begin, into);
                                                   }));
  return state;
}

void internal::verify_safetensors(const fs::path& path, const std::string& file_kind) {
  File file = open_to_read(path, file_kind);
  try {
    const SafetensorsHeader header =
        read_header(file.size(), [&](char* into, std::size_t bytes) { file.read(into, bytes); });
    std::string piece;
    std::uint32_t checksum = 0;
    for (std::uint64_t left = header.data_bytes(); left > 0; left -= piece.size()) {
      piece.resize(std::min<std::uint64_t>(left, piece_bytes));
      file.read(piece.data(), piece.size());
      checksum = crc32(piece, checksum);
    }
    require_checksum(header, checksum);
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

StateDict internal::read_safetensors(std::string_view bytes) {
  std::size_t position = 0;
  return read_safetensors(bytes.size(), [&](char* into, std::size_t count) {
    position += bytes.copy(into, count, position);
  });
}

MatchedNames internal::match_names(const std::string& where, const std::vector<std::string>& wanted,
                                   const std::vector<std::string>& in_file,
                                   const SafetensorsOptions& options) {
  MatchedNames matched;
  std::set<std::string> open(wanted.begin(), wanted.end());
  for (const std::string& found : in_file) {
    if (!found.starts_with(options.prefix)) continue;
    const std::string name = found.substr(options.prefix.size());
    if (open.erase(name) != 0) {
      matched.pairs.emplace_back(name, found);
    } else {
      matched.unmatched.unexpected.push_back(name);
    }
  }
  for (const std::string& name : wanted)
    if (open.contains(name)) matched.unmatched.missing.push_back(name);
  if (options.strict) require_all_matched(where, matched.unmatched, options);
  return matched;
}

std::string to_safetensors(const StateDict& state) {
  std::string all;
  write_to({.append = [&](std::string_view bytes) { all += bytes; },
            .replace_start = [&](std::string_view bytes) { all.replace(0, bytes.size(), bytes); }},
           StateView(state));
  return all;
}

StateDict from_safetensors(std::string_view bytes) {
  try {
    return read_safetensors(bytes);
  } catch (const SafetensorsFault& fault) {
    throw InvalidArgument(
        fmt::format("these bytes are not those of a safetensors file: it {}", fault.what()));
  }
}

UnmatchedNames load_state(const TensorViews& into, const StateView& state,
                          const SafetensorsOptions& options) {
  return copy_by_name("this state", state, into, options);
}

StateDict load_safetensors(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return load_set(path / safetensors_index_name);
  return is_index(path) ? load_set(path) : load_one(path);
}

UnmatchedNames load_safetensors(const fs::path& path, const TensorViews& into,
                                const SafetensorsOptions& options) {
  return copy_by_name(fmt::format("'{}'", path.string()), load_safetensors(path), into, options);
}

void save_safetensors(const fs::path& path, const ConstTensorViews& tensors,
                      const Metadata& metadata) {
  write_safetensors(path, file_kind, StateView(tensors, metadata));
}

}  // namespace kolo
