// Gets the data set from where its makers publish it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace cifar10 {

struct Archive {
  std::string url;
  std::string file;     ///< What it is called on disk: a .tar.gz.
  std::string content;  ///< The directory that unpacking makes.
  std::uint64_t bytes;
  std::string md5;  ///< As its publisher gives it.
};

inline const Archive cifar10_archive{
    .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    .file = "cifar-10-binary.tar.gz",
    .content = "cifar-10-batches-bin",
    .bytes = 170'052'171,
    .md5 = "c32a1d4ab5d03f1284b67883e8d87530"};

/// Puts `archive.content` into `directory`, which is made if need be. Does nothing if it is there.
/// What was fetched is unpacked only if its checksum is right. Throws std::runtime_error.
void download(const Archive& archive, const std::filesystem::path& directory);

/// The MD5 of a file in hexadecimal. Throws std::runtime_error.
[[nodiscard]] std::string md5_of(const std::filesystem::path& file);

}  // namespace cifar10
