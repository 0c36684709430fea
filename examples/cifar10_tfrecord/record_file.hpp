// SPDX-License-Identifier: Apache-2.0
// TensorFlow's record files. A record is its length (8 bytes, little-endian), the masked CRC-32C of
// these 8 bytes, its bytes, and their masked CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tfrecord {

/// Why a file cannot be used.
enum class Fault : std::uint8_t {
  missing,    ///< It cannot be opened or read.
  truncated,  ///< It ends within a record whose length is valid.
  corrupt,    ///< A checksum is wrong, or a record is not a valid example.
};

/// Thrown for a file that cannot be used. The message has the file, the offset and the finding.
class RecordError : public std::runtime_error {
 public:
  RecordError(Fault fault, const std::filesystem::path& file, std::uint64_t offset,
              const std::string& what);

  [[nodiscard]] Fault fault() const noexcept { return fault_; }
  /// Bytes from the start of the file to the corrupt part, or to the truncated record.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  Fault fault_;
  std::uint64_t offset_;
};

/// Reads the records of a file in order. Checks a record's length before it allocates memory for
/// the record, and the record's bytes before it returns them. Not thread-safe.
class RecordReader {
 public:
  /// Throws RecordError if the file cannot be opened.
  explicit RecordReader(std::filesystem::path file);

  /// The next record; nothing at the end of the file. Throws RecordError.
  [[nodiscard]] std::optional<std::string> next();

  /// Offset in the file of the bytes of the last record returned.
  [[nodiscard]] std::uint64_t data_offset() const { return data_offset_; }

 private:
  [[nodiscard]] std::uint64_t read_length();
  void read(char* bytes, std::uint64_t size);

  std::filesystem::path file_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;  // position of the next record
  std::uint64_t data_offset_ = 0;
};

/// Writes records. Only `close` hands all of them to the system. Not thread-safe.
class RecordWriter {
 public:
  /// Creates or truncates the file. Throws std::runtime_error.
  explicit RecordWriter(std::filesystem::path file);
  void write(std::string_view record);
  /// Throws std::runtime_error if any write failed.
  void close();

 private:
  std::filesystem::path file_;
  std::ofstream stream_;
};

}  // namespace tfrecord
