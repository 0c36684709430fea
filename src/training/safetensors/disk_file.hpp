// SPDX-License-Identifier: Apache-2.0
// Files that are read and written whole. All functions throw CheckpointError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

/// An open file, which the destructor closes. Not thread-safe.
class File {
 public:
  /// `purpose` and `kind` are for messages: "cannot <purpose> <kind> '<path>'".
  File(const std::filesystem::path& path, int flags, const char* purpose, std::string kind);
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File(File&& other) noexcept;
  ~File();

  void write(std::string_view bytes);
  /// Overwrites bytes that were written before.
  void write_at(std::uint64_t offset, std::string_view bytes);
  /// Reads on from the current position.
  void read(char* into, std::size_t bytes);
  [[nodiscard]] std::string read(std::size_t bytes);
  /// Reads from this offset, whatever the current position is.
  void read_at(std::uint64_t offset, char* into, std::size_t bytes);
  [[nodiscard]] std::uint64_t size() const;
  /// True if both were the same file, unchanged, when they were opened.
  [[nodiscard]] bool is_same_as(const File& other) const { return identity_ == other.identity_; }
  void flush_to_disk();
  /// Closes the file. Some file systems report only at close that the disk is full.
  void close();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::string& kind() const { return kind_; }
  /// Throws with the message "<kind> '<path>' <why>".
  [[noreturn]] void refuse(CheckpointFault fault, const std::string& why) const;

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t number = 0;
    std::int64_t bytes = 0;
    std::int64_t seconds = 0;  // of the last change
    std::int64_t nanoseconds = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  [[noreturn]] void fail_with_errno() const;
  template <typename ReadSome>
  void read_all(char* into, std::size_t bytes, const ReadSome& read_some);

  int descriptor_;
  std::filesystem::path path_;
  const char* purpose_;
  std::string kind_;
  Identity identity_{};
};

/// Opens an existing file to read it. Throws with the fault `missing` if there is none.
[[nodiscard]] File open_to_read(const std::filesystem::path& path, const std::string& kind);

/// Calls `write` with a file of another name, flushes it to the disk, and renames it to `path`. On
/// failure `path` is unchanged and no other file is left. Several processes and threads may write
/// one path: the last to finish replaces it.
void write_file(const std::filesystem::path& path, const std::string& kind,
                const std::function<void(File&)>& write);

/// A random name for a file that is still being written, which no other writer uses:
/// "<path>.<16 hexadecimal digits>.part".
[[nodiscard]] std::filesystem::path unfinished_name(const std::filesystem::path& path);
/// The final path of a file with an unfinished name; empty for any other name.
[[nodiscard]] std::filesystem::path finished_name(std::filesystem::path path);
/// Flushes the names in this path's directory to the disk, as far as the file system can.
void flush_directory_of(const std::filesystem::path& path);

}  // namespace kolo::internal
