// SPDX-License-Identifier: Apache-2.0
// A file in memory, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "node/file_descriptor.hpp"

namespace kolo::internal::fuzz {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("kolo-fuzz", MFD_CLOEXEC)) {
    require_success(file_.valid());
    path_ = "/proc/self/fd/" + std::to_string(file_.get());
  }

  /// Replaces the contents.
  void set(std::span<const std::uint8_t> bytes) {
    require_success(::ftruncate(file_.get(), 0) == 0);
    require_success(::pwrite(file_.get(), bytes.data(), bytes.size(), 0) ==
                    static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::string contents() const {
    std::string bytes(std::filesystem::file_size(path_), '\0');
    require_success(::pread(file_.get(), bytes.data(), bytes.size(), 0) ==
                    static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  /// Opening the path reads the file from its beginning.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  static void require_success(bool success) {
    if (!success) throw std::system_error(errno, std::generic_category(), "a file in memory");
  }

  node::FileDescriptor file_;
  std::filesystem::path path_;
};

}  // namespace kolo::internal::fuzz
