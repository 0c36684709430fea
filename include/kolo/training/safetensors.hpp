// SPDX-License-Identifier: Apache-2.0
// Tensors by name in safetensors files, which most frameworks read and write. No communication.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/tensor.hpp"
#include "kolo/training/checkpointer.hpp"  // CheckpointError

namespace kolo {

/// A tensor that owns its elements: row-major, without gaps, little-endian.
struct StoredTensor {
  DType dtype = DType::u8;
  Shape shape{};
  std::string bytes{};

  /// Valid until `bytes` changes.
  [[nodiscard]] ConstTensorView view() const { return {bytes.data(), shape, dtype}; }
};

/// The metadata of a file: strings by name, all UTF-8.
using Metadata = std::map<std::string, std::string>;

/// The contents of a safetensors file.
struct Safetensors {
  std::map<std::string, StoredTensor> tensors{};
  Metadata metadata{};
};

/// Tensors in memory by name, such as {{"weight", weight}, {"bias", bias}} of two vectors.
using TensorViews = std::map<std::string, TensorView>;
using ConstTensorViews = std::map<std::string, ConstTensorView>;

struct SafetensorsOptions {
  bool strict = true;    ///< Refuse missing and unexpected names.
  std::string prefix{};  ///< Use only names with this prefix, and remove the prefix.
};

/// The names that did not match; both lists are empty if `strict`.
struct UnmatchedNames {
  std::vector<std::string> missing{};     ///< Wanted, but not in the file.
  std::vector<std::string> unexpected{};  ///< In the file, but not wanted.
};

/// Reads a safetensors file, or the files that an index (`*.index.json`) in the same folder lists.
/// The whole result is held in memory. If the file has the checksums that `Checkpointer` writes,
/// they are verified. Throws CheckpointError if the file is missing, damaged, of another format, or
/// has a dtype that Kolo lacks. Not collective; thread-safe.
[[nodiscard]] KOLO_EXPORT Safetensors load_safetensors(const std::filesystem::path& path);

/// As above, into tensors in CPU memory. Throws InvalidArgument for a tensor of another shape
/// or dtype and, if `strict`, for missing and unexpected names; then no tensor is changed.
KOLO_EXPORT UnmatchedNames load_safetensors(const std::filesystem::path& path,
                                            const TensorViews& into,
                                            const SafetensorsOptions& options = {});

/// Writes a safetensors file of tensors in CPU memory. Writes under a temporary name, flushes to
/// disk, and renames, so that `path` always names a complete file. Several ranks may write the same
/// path: the last one to finish wins. A process that is killed may leave a file
/// "<path>.<16 hexadecimal digits>.part". Throws InvalidArgument for a tensor on a GPU and for
/// names or metadata that are not UTF-8, and CheckpointError if the system fails. Not collective;
/// thread-safe.
KOLO_EXPORT void save_safetensors(const std::filesystem::path& path,
                                  const ConstTensorViews& tensors, const Metadata& metadata = {});

/// Converts tensors to the bytes of a safetensors file and back. If a checkpoint's part consists of
/// such bytes, `Checkpointer` stores each of its tensors as `<part>.<name>`. Throws InvalidArgument
/// as above, and for bytes in another format.
///
///     checkpoints.save(step, {{"model", kolo::to_safetensors({{"weight", weight}})}});
///     kolo::from_safetensors(checkpoint.part("model"), {{"weight", weight}});
[[nodiscard]] KOLO_EXPORT std::string to_safetensors(const ConstTensorViews& tensors,
                                                     const Metadata& metadata = {});
[[nodiscard]] KOLO_EXPORT Safetensors from_safetensors(std::string_view bytes);
KOLO_EXPORT UnmatchedNames from_safetensors(std::string_view bytes, const TensorViews& into,
                                            const SafetensorsOptions& options = {});

}  // namespace kolo
