// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files on disk and in memory, and matches tensors by name.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kolo/export.hpp"  // kolo::torch, another library, uses the marked functions
#include "kolo/training/checkpoint.hpp"
#include "training/safetensors/safetensors_header.hpp"

namespace kolo::internal {

/// Writes a file, and reads each tensor once. `file_kind` is for the messages of errors: "cannot
/// write checkpoint 'a'". Sets the checksums if the metadata has entries for them. Throws
/// CheckpointError, and InvalidArgument like `save_safetensors`.
KOLO_EXPORT void write_safetensors(const std::filesystem::path& path, const std::string& file_kind,
                                   const StateView& state);
/// Throws InvalidArgument if the state has names or metadata that such a file cannot have.
void require_writable(const StateView& state);

/// Copies the next bytes of a file, on a disk or in memory.
using ReadBytes = std::function<void(char* into, std::size_t bytes)>;

/// Reads a file of `total` bytes, or only its header, and verifies the checksums that the metadata
/// has. Throws SafetensorsFault.
[[nodiscard]] SafetensorsHeader read_header(std::uint64_t total, const ReadBytes& read);
[[nodiscard]] StateDict read_safetensors(std::uint64_t total, const ReadBytes& read);
/// Parses the bytes of a whole file.
[[nodiscard]] StateDict read_safetensors(std::string_view bytes);
/// Reads the header of a file. The result reads the tensors from the file when they are needed, and
/// does not verify the checksum of the data. It keeps the file open if `keeps_open`. Throws
/// CheckpointError, as its sources do.
[[nodiscard]] StateView view_safetensors(const std::filesystem::path& path,
                                         const std::string& file_kind, bool keeps_open = true);
/// Reads a whole file and verifies its checksums. Throws CheckpointError.
void verify_safetensors(const std::filesystem::path& path, const std::string& file_kind);

/// The word in messages for the holder of the saved tensors: a file, if `where`, with which the
/// message begins, is a quoted path; otherwise a state.
[[nodiscard]] inline std::string_view holder_of(std::string_view where) {
  return where.starts_with('\'') ? "file" : "state";
}

struct MatchedNames {
  std::vector<std::pair<std::string, std::string>> pairs{};  // in memory, in the file
  UnmatchedNames unmatched{};
};

/// Throws InvalidArgument if names do not match and `options` are strict; `where` begins the
/// message. Names in the file that lack the prefix are ignored.
[[nodiscard]] KOLO_EXPORT MatchedNames match_names(const std::string& where,
                                                   const std::vector<std::string>& wanted,
                                                   const std::vector<std::string>& in_file,
                                                   const SafetensorsOptions& options);

template <typename Map>
[[nodiscard]] std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

/// The names of `into` that the file, which has the tensors `from`, must have. Of the names of a
/// tied weight, one suffices: other programs write it once. `identity` returns a pointer, which is
/// equal for all names of one tensor; if it is null, the tensor is not tied.
template <typename Map, typename Stored, typename Identity>
[[nodiscard]] std::vector<std::string> required_names(const Map& into, const Stored& from,
                                                      const std::string& prefix,
                                                      const Identity& identity) {
  std::set<const void*> found;
  for (const auto& [name, tensor] : into)
    if (from.contains(prefix + name)) found.insert(identity(tensor));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : into) {
    const void* const same = identity(tensor);
    if (from.contains(prefix + name) || same == nullptr || !found.contains(same))
      names.push_back(name);
  }
  return names;
}

}  // namespace kolo::internal
