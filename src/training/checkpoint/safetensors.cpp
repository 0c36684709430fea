// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint/disk_file.hpp"
#include "training/checkpoint/index_files.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace fs = std::filesystem;

constexpr const char* file_kind = "safetensors file";

// The bytes of a file in the order in which they are written: the header, then each tensor.
class FileLayout {
 public:
  explicit FileLayout(const StateViews& state) {
    SafetensorsHeader header{.metadata = state.metadata};
    for (const auto& [name, view] : state.tensors) {
      require_cpu(name, view.device());
      header.tensors.push_back({.name = name, .dtype = view.dtype(), .shape = view.shape()});
    }
    lay_out(header);
    std::uint32_t checksum = 0;
    const auto stated = header.metadata.find(std::string(data_checksum_key));
    for (const TensorEntry& entry : header.tensors) {
      tensors_.emplace_back(static_cast<const char*>(state.tensors.at(entry.name).data()),
                            entry.end - entry.begin);
      if (stated != header.metadata.end()) checksum = crc32(tensors_.back(), checksum);
    }
    if (stated != header.metadata.end()) stated->second = print_checksum(checksum);
    header_ = print_header(header);
    bytes_ = header_.size() + header.data_bytes();
  }

  template <typename Write>
  void write(const Write& write) const {
    write(header_);
    for (const std::string_view tensor : tensors_) write(tensor);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::string header_{};
  std::vector<std::string_view> tensors_{};
  std::size_t bytes_ = 0;
};

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
  for (const fs::path& file : index.files) {
    StateDict one = load_one(file);
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
UnmatchedNames copy_by_name(const std::string& where, const StateDict& from,
                            const TensorViews& into, const SafetensorsOptions& options) {
  const auto identity = [](const TensorView& tensor) {
    return tensor.elements() > 0 ? tensor.data() : nullptr;
  };
  MatchedNames matched =
      match_names(where, required_names(into, from.tensors, options.prefix, identity),
                  names_of(from.tensors), options);
  for (const auto& [wanted, found] : matched.pairs) {
    const TensorView& to = into.at(wanted);
    const StoredTensor& source = from.tensors.at(found);
    static_cast<void>(source.view());  // its size is that of its shape
    require_cpu(wanted, to.device());
    require(to.dtype() == source.dtype && to.shape() == source.shape,
            "{}: tensor '{}' is {} {} in the {} but {} {} in the program", where, found,
            to_string(source.dtype), to_string(source.shape), holder_of(where),
            to_string(to.dtype()), to_string(to.shape()));
  }
  // All tensors are checked before the first one changes.
  for (const auto& [wanted, found] : matched.pairs) {
    const std::string& bytes = from.tensors.at(found).bytes;
    if (!bytes.empty()) std::memcpy(into.at(wanted).data(), bytes.data(), bytes.size());
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
                                 const StateViews& state) {
  const FileLayout layout(state);
  write_file(path, kind,
             [&](File& file) { layout.write([&](std::string_view bytes) { file.write(bytes); }); });
}

std::string internal::write_safetensors(const StateViews& state) {
  const FileLayout layout(state);
  std::string all;
  all.reserve(layout.bytes());
  layout.write([&](std::string_view bytes) { all += bytes; });
  return all;
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

StateViews internal::view_safetensors(std::string_view bytes) {
  std::size_t position = 0;
  SafetensorsHeader header = read_header(bytes.size(), [&](char* into, std::size_t count) {
    position += bytes.copy(into, count, position);
  });
  const std::string_view data = bytes.substr(position);
  require_checksum(header, crc32(data));
  StateViews state{.metadata = std::move(header.metadata)};
  for (const TensorEntry& entry : header.tensors)
    state.tensors.emplace(entry.name,
                          ConstTensorView(data.data() + entry.begin, entry.shape, entry.dtype));
  return state;
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
  return write_safetensors({.tensors = state.views(), .metadata = state.metadata});
}

StateDict from_safetensors(std::string_view bytes) {
  try {
    return read_safetensors(bytes);
  } catch (const SafetensorsFault& fault) {
    throw InvalidArgument(
        fmt::format("these bytes are not those of a safetensors file: it {}", fault.what()));
  }
}

UnmatchedNames load_state(const TensorViews& into, const StateDict& state,
                          const SafetensorsOptions& options) {
  return copy_by_name("this state", state, into, options);
}

StateDict load_safetensors(const fs::path& path) {
  return is_index(path) ? load_set(path) : load_one(path);
}

UnmatchedNames load_safetensors(const fs::path& path, const TensorViews& into,
                                const SafetensorsOptions& options) {
  return copy_by_name(fmt::format("'{}'", path.string()), load_safetensors(path), into, options);
}

void save_safetensors(const fs::path& path, const ConstTensorViews& tensors,
                      const Metadata& metadata) {
  write_safetensors(path, file_kind, {.tensors = tensors, .metadata = metadata});
}

}  // namespace kolo
