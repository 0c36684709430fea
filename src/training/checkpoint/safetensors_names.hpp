// SPDX-License-Identifier: Apache-2.0
// Tensors of a file by name, for tensors in memory.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked
#include "kolo/training/safetensors.hpp"

namespace kolo::internal {

/// What holds the saved tensors, for a message that begins with `where`: a quoted path or a
/// description of bytes.
[[nodiscard]] inline std::string_view holder_of(std::string_view where) {
  return where.starts_with('\'') ? "file" : "bytes";
}

struct MatchedNames {
  std::vector<std::pair<std::string, std::string>> pairs{};  // in memory, in the file
  UnmatchedNames unmatched{};
};

/// Throws InvalidArgument if names do not match and `options` are strict; `where` begins the
/// message. Names of the file without the prefix do not count.
[[nodiscard]] KOLO_EXPORT MatchedNames match_names(const std::string& where,
                                                   const std::vector<std::string>& wanted,
                                                   const std::vector<std::string>& in_file,
                                                   const SafetensorsOptions& options);

/// The contents of a file in memory.
struct SafetensorsViews {
  ConstTensorViews tensors{};
  Metadata metadata{};
};

/// Views of `bytes`, which must outlive the result. They are aligned if the file is that of
/// `to_safetensors`. Throws InvalidArgument for bytes of another format.
[[nodiscard]] KOLO_EXPORT SafetensorsViews parse_safetensors(std::string_view bytes);

template <typename Map>
[[nodiscard]] std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

}  // namespace kolo::internal
