// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/checkpoint_files.hpp"
#include "training/checkpoint/part_names.hpp"
#include "training/require.hpp"
#include "training/safetensors/index_files.hpp"
#include "training/safetensors/safetensors.hpp"
#include "training/safetensors/safetensors_header.hpp"

namespace kolo {

using namespace internal;

namespace {

/// The result replaces what has its name, so that must be no file of the checkpoint, and nothing
/// else than a file.
void require_free(const std::filesystem::path& to, const CheckpointSet& set) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(to, error);
  if (!std::filesystem::exists(status)) return;
  require(std::filesystem::is_regular_file(status), "'{}' exists, and is not a regular file",
          to.string());
  const std::filesystem::path folder = set.path;
  bool is_input = std::filesystem::equivalent(to, folder / safetensors_index_name, error);
  for (const std::filesystem::path& file : set.files)
    is_input |= std::filesystem::equivalent(to, file, error);
  require(!is_input, "'{}' is a file of the checkpoint that is to be merged", to.string());
}

}  // namespace

void merge_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                      const std::string& part) {
  const CheckpointSet set = find_checkpoint(from);
  require_free(to, set);
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
