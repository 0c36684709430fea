// Files of records, as TensorFlow writes them: of each record its length (8 bytes, little endian),
// the masked CRC-32C of these 8 bytes, its bytes, and their masked CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tfrecord {

/// What is wrong with a file.
enum class Fault : std::uint8_t {
  missing,    ///< It cannot be opened or read.
  truncated,  ///< It ends within a record whose length is good.
  corrupt,    ///< A checksum is wrong, or what it covers is no example.
};

/// A file that cannot be used. The message names file, offset and what was found there.
class RecordError : public std::runtime_error {
 public:
  RecordError(Fault fault, const std::filesystem::path& file, std::uint64_t offset,
              const std::string& what);

  [[nodiscard]] Fault fault() const noexcept { return fault_; }
  /// In bytes from the start of the file: of the checksummed part that is wrong, or of the record
  /// that is cut off.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  Fault fault_;
  std::uint64_t offset_;
};

/// Reads the records of a file one after the other. Both checksums of each are checked before
/// anything is given out or memory is taken for it. Not thread-safe.
class RecordReader {
 public:
  /// Throws RecordError if the file cannot be opened.
  explicit RecordReader(std::filesystem::path file);

  /// The next record; nothing at the end of the file. Throws RecordError.
  [[nodiscard]] std::optional<std::string> next();

  /// Where in the file the bytes begin of the record that was given out last.
  [[nodiscard]] std::uint64_t data_offset() const { return data_offset_; }

 private:
  [[nodiscard]] std::uint64_t read_length();
  void read(char* bytes, std::uint64_t size);

  std::filesystem::path file_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;  // of the next record
  std::uint64_t data_offset_ = 0;
};

/// Writes records. What was written is on its way to the disk after `close` only. Not thread-safe.
class RecordWriter {
 public:
  /// Makes the file, or empties it. Throws std::runtime_error.
  explicit RecordWriter(std::filesystem::path file);
  void write(std::string_view record);
  /// Throws std::runtime_error if anything could not be written.
  void close();

 private:
  std::filesystem::path file_;
  std::ofstream stream_;
};

}  // namespace tfrecord
