// SPDX-License-Identifier: Apache-2.0
// The files of one checkpoint. No communication. All functions throw CheckpointError.
//
// A checkpoint is a folder with the files "model-<number>-of-<files>.safetensors", numbered from 1,
// and the index "model.safetensors.index.json", which names the file of each tensor, as in other
// programs. part_names.hpp has the names of the tensors. One file of another program, or one that
// was merged, is a checkpoint too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/checkpoint_header.hpp"
#include "training/checkpoint/part_names.hpp"

namespace kolo::internal {

/// The path of a file in a folder. `number` begins at 0.
[[nodiscard]] std::filesystem::path checkpoint_file(const std::filesystem::path& folder, int number,
                                                    int files);

/// Writes one file of a checkpoint. Writes under another name, flushes to the disk, and renames. On
/// failure `path` is unchanged and no other file is left. Also throws InvalidArgument.
void write_checkpoint_file(const std::filesystem::path& path, const CheckpointHeader& header,
                           StateView state);

/// Writes the index of a folder whose files are complete.
void write_checkpoint_index(const std::filesystem::path& folder, const CheckpointHeader& header);

/// Reads what the index of a folder states, and none of the files.
[[nodiscard]] CheckpointHeader read_checkpoint_header(const std::filesystem::path& folder);

struct CheckpointSet {
  std::filesystem::path path{};  // a folder, or a file that is a whole checkpoint
  CheckpointHeader header{};
  std::string identity{};  // differs between any two checkpoints of a path
  std::vector<std::filesystem::path> files{};
  std::vector<std::string> tensors{};  // names that the files must have
};

/// Finds the files of the checkpoint at this path: a folder, its index, or one file. Reads only the
/// index, or the header of the one file. All files exist.
[[nodiscard]] CheckpointSet find_checkpoint(const std::filesystem::path& path);

/// Reads and checks the headers of all files. The result reads the tensors when they are needed,
/// and does not verify the checksums of the data.
[[nodiscard]] StateView view_checkpoint(const CheckpointSet& set);

/// The parts in a view of a checkpoint.
[[nodiscard]] Parts parts_in(const CheckpointSet& set, const StateView& view);

/// Reads one of the files and verifies all of it.
void verify_checkpoint_file(const std::filesystem::path& file);

}  // namespace kolo::internal
