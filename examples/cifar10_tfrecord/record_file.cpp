// SPDX-License-Identifier: Apache-2.0
#include "record_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "bytes.hpp"

namespace tfrecord {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t crc_bytes = 4;
constexpr std::uint64_t header_bytes = length_bytes + crc_bytes;

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::missing: return "cannot be read";
    case Fault::truncated: return "is truncated";
    case Fault::corrupt: return "is corrupt";
  }
  return "is bad";
}

}  // namespace

RecordError::RecordError(Fault fault, const std::filesystem::path& file, std::uint64_t offset,
                         const std::string& what)
    : std::runtime_error(
          fmt::format("'{}' {} at offset {}: {}", file.string(), name_of(fault), offset, what)),
      fault_(fault),
      offset_(offset) {}

RecordReader::RecordReader(std::filesystem::path file)
    : file_(std::move(file)), stream_(file_, std::ios::binary) {
  std::error_code error;
  size_ = std::filesystem::file_size(file_, error);
  if (!error && !stream_) error = std::error_code(errno, std::generic_category());
  if (error) throw RecordError(Fault::missing, file_, 0, error.message());
}

void RecordReader::read(char* bytes, std::uint64_t size) {
  stream_.read(bytes, static_cast<std::streamsize>(size));
  if (stream_) return;
  throw RecordError(Fault::missing, file_, offset_,
                    "the system gave fewer bytes than the file has");
}

// The length has its own checksum, which is checked first. So a file that ends too early is known
// to be truncated, and a corrupt length allocates no memory.
std::uint64_t RecordReader::read_length() {
  if (size_ - offset_ < header_bytes) {
    throw RecordError(Fault::truncated, file_, offset_,
                      fmt::format("{} bytes are left, the header of a record has {}",
                                  size_ - offset_, header_bytes));
  }
  std::array<char, header_bytes> header;
  read(header.data(), header.size());
  const std::string_view bytes(header.data(), header.size());
  const auto stored = from_little_endian<std::uint32_t>(bytes.substr(length_bytes));
  const std::uint32_t computed = masked_crc32c(bytes.substr(0, length_bytes));
  if (stored != computed) {
    throw RecordError(Fault::corrupt, file_, offset_,
                      fmt::format("a record's length has the checksum {:08x}, stored is {:08x}",
                                  computed, stored));
  }
  return from_little_endian<std::uint64_t>(bytes);
}

std::optional<std::string> RecordReader::next() {
  if (offset_ == size_) return std::nullopt;
  const std::uint64_t length = read_length();
  const std::uint64_t left = size_ - offset_ - header_bytes;
  if (left < crc_bytes || left - crc_bytes < length) {
    throw RecordError(
        Fault::truncated, file_, offset_,
        fmt::format("a record of {} bytes and its checksum should follow the header, {} bytes do",
                    length, left));
  }
  std::string record(length, '\0');
  read(record.data(), length);
  std::array<char, crc_bytes> crc;
  read(crc.data(), crc.size());
  const auto stored = from_little_endian<std::uint32_t>({crc.data(), crc.size()});
  const std::uint32_t computed = masked_crc32c(record);
  data_offset_ = offset_ + header_bytes;
  if (stored != computed) {
    throw RecordError(Fault::corrupt, file_, data_offset_,
                      fmt::format("a record of {} bytes has the checksum {:08x}, stored is {:08x}",
                                  length, computed, stored));
  }
  offset_ = data_offset_ + length + crc_bytes;
  return record;
}

RecordWriter::RecordWriter(std::filesystem::path file)
    : file_(std::move(file)), stream_(file_, std::ios::binary) {
  if (!stream_) {
    throw std::runtime_error(
        fmt::format("cannot write '{}': {}", file_.string(), std::strerror(errno)));
  }
}

void RecordWriter::write(std::string_view record) {
  const std::string length = to_little_endian<std::uint64_t>(record.size());
  stream_ << length << to_little_endian(masked_crc32c(length)) << record
          << to_little_endian(masked_crc32c(record));
}

void RecordWriter::close() {
  stream_.close();
  if (!stream_) throw std::runtime_error(fmt::format("cannot write '{}'", file_.string()));
}

}  // namespace tfrecord
