// SPDX-License-Identifier: Apache-2.0
// The contents of a checkpoint as copies, which tests compare.
#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

#include "training/checkpoint/checkpoint_files.hpp"
#include "training/checkpoint/part_names.hpp"

namespace kolo::internal::testing_support {

struct Contents {
  CheckpointHeader header{};
  NamedStates parts{};
  std::vector<NamedStates> per_rank{};
};

inline NamedStates copies_of(const NamedViews& views) {
  NamedStates states;
  for (const auto& [name, view] : views) states[name] = view.copy();
  return states;
}

// Reads and verifies a whole checkpoint.
inline Contents read(const std::filesystem::path& path) {
  const CheckpointSet set = find_checkpoint(path);
  const StateView view = view_checkpoint(set);
  for (const std::filesystem::path& file : set.files) verify_checkpoint_file(file);
  const Parts parts = parts_in(set, view);
  Contents contents{.header = set.header, .parts = copies_of(parts.shared)};
  for (const NamedViews& own : parts.per_rank) contents.per_rank.push_back(copies_of(own));
  return contents;
}

// The contents of one file with all parts.
inline StateView file_of(const NamedStates& parts, const std::vector<NamedStates>& per_rank) {
  StateView file = flatten({parts.begin(), parts.end()});
  for (std::size_t rank = 0; rank < per_rank.size(); ++rank) {
    const NamedStates& own = per_rank[rank];
    StateView more = flatten({own.begin(), own.end()}, static_cast<int>(rank));
    file.tensors.merge(more.tensors);
    file.metadata.merge(more.metadata);
  }
  return file;
}

}  // namespace kolo::internal::testing_support
