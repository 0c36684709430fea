// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/checkpoint_files.hpp"
#include "training/checkpoint/part_names.hpp"
#include "training/require.hpp"
#include "training/safetensors/safetensors.hpp"
#include "training/safetensors/safetensors_header.hpp"

namespace kolo {

using namespace internal;

void merge_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                      const std::string& part) {
  const CheckpointSet set = find_checkpoint(from);
  for (const std::filesystem::path& file : set.files) verify_checkpoint_file(file);
  StateView whole = view_checkpoint(set);
  if (part.empty()) {
    CheckpointHeader header = set.header;
    header.files = 0;  // a file by itself
    return write_checkpoint_file(to, header, std::move(whole));
  }
  NamedViews parts = parts_in(set, whole).shared;
  const auto found = parts.find(part);
  require(found != parts.end(), "checkpoint '{}' has no part '{}'", set.path.string(), part);
  found->second.metadata["format"] = "pt";
  write_safetensors(to, "safetensors file", found->second);
}

}  // namespace kolo
