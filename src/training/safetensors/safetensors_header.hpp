// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, parsed from and printed to memory.
//
// The format: a u64 number N, little-endian; N bytes of JSON, padded with spaces; the data of the
// tensors. The JSON is an object with one member per tensor, {"dtype": "F32", "shape": [64, 3],
// "data_offsets": [begin, end]}, with offsets into the data, and a member "__metadata__" of texts
// by name. Together the tensors cover the data, without gaps.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

/// Thrown for bytes that are not a safetensors file. The message continues a sentence whose subject
/// is the file: "is corrupt: ...".
class SafetensorsFault : public std::runtime_error {
 public:
  SafetensorsFault(CheckpointFault fault, const std::string& message)
      : std::runtime_error(message), fault_(fault) {}
  [[nodiscard]] CheckpointFault fault() const noexcept { return fault_; }

 private:
  CheckpointFault fault_;
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::u8;
  Shape shape{};
  std::uint64_t begin = 0;  // offset in the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors{};  // in the order of their data
  Metadata metadata{};

  [[nodiscard]] std::uint64_t data_bytes() const {
    return tensors.empty() ? 0 : tensors.back().end;
  }
};

/// Metadata entries with which Kolo secures its checkpoints: checksums as 8 hexadecimal digits. The
/// checksum of the header (the JSON with its padding) is computed with zeros in place of its own
/// digits.
constexpr std::string_view header_checksum_key = "kolo.writer.crc32.header";
constexpr std::string_view data_checksum_key = "kolo.writer.crc32.data";

/// Returns the number N at the start of a file of `total` bytes. `start` has the first 9 bytes of
/// the file, or all bytes of a shorter one. Throws SafetensorsFault if the header does not fit into
/// the file.
constexpr std::size_t header_start_bytes = 9;
[[nodiscard]] std::uint64_t header_length(std::string_view start, std::uint64_t total);

/// Reads the JSON of a file with `data_bytes` bytes of data, and verifies the checksum of the
/// header if it has one. Afterwards all offsets are within the data and match shapes and dtypes.
/// Throws SafetensorsFault.
[[nodiscard]] SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes);

/// Orders the tensors (by descending size of their elements, then by name) and sets the offsets.
/// Throws InvalidArgument for a negative length or too many bytes.
void lay_out(SafetensorsHeader& header);

/// Prints N and the JSON, with a total length that is a multiple of 8. Sets the checksum of the
/// header if the metadata has an entry for it. Throws InvalidArgument for texts that are not UTF-8
/// and for two tensors of the same name.
[[nodiscard]] std::string print_header(const SafetensorsHeader& header);

/// The checksum as 8 hexadecimal digits.
[[nodiscard]] std::string print_checksum(std::uint32_t checksum);

}  // namespace kolo::internal
