// SPDX-License-Identifier: Apache-2.0
// Downloads the data set from its publisher.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace cifar10 {

struct Archive {
  std::string url;
  std::string file;     ///< Its name on disk, a .tar.gz.
  std::string content;  ///< The directory that it unpacks to.
  std::uint64_t bytes;
  std::string md5;  ///< As published.
};

inline const Archive cifar10_archive{
    .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    .file = "cifar-10-binary.tar.gz",
    .content = "cifar-10-batches-bin",
    .bytes = 170'052'171,
    .md5 = "c32a1d4ab5d03f1284b67883e8d87530"};

/// Downloads and unpacks `archive.content` into `directory`, which is created if necessary. Does
/// nothing if the content exists. Unpacks only an archive with the right checksum. Throws
/// std::runtime_error.
void download(const Archive& archive, const std::filesystem::path& directory);

/// The MD5 of a file in hexadecimal. Throws std::runtime_error.
[[nodiscard]] std::string md5_of(const std::filesystem::path& file);

}  // namespace cifar10
