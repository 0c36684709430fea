// A file without a place on any disk, for readers that want a path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "node/file_descriptor.hpp"

namespace kolo::fuzz {

class MemoryFile {
 public:
  MemoryFile();

  /// Replaces what was there.
  void set(std::span<const std::uint8_t> bytes);
  [[nodiscard]] std::string contents() const;
  /// Opens it anew, from its beginning.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  node::FileDescriptor file_;
  std::filesystem::path path_;
};

}  // namespace kolo::fuzz
