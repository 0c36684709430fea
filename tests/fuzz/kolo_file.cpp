// SPDX-License-Identifier: Apache-2.0
// A checkpoint in the format of earlier versions: header, length and checksums.
#include "training/kolo_file.hpp"

#include <string>

#include "../training/kolo_file.hpp"
#include "memory_file.hpp"
#include "target.hpp"
#include "training/bytes.hpp"

namespace kolo::internal::fuzz {
namespace {

constexpr std::size_t header_bytes = 48;
constexpr std::size_t length_at = 32;
constexpr std::size_t payload_checksum_at = 40;
constexpr std::size_t header_checksum_at = 44;

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  try {
    const internal::CheckpointContents contents = internal::read_kolo_file(file.path());
    require(internal::encode(contents.payload).size() + header_bytes <= bytes.size(),
            "parts that are longer than the file");
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

void put(std::span<std::uint8_t> file, std::size_t at, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    file[at + i] = static_cast<std::uint8_t>(number >> (8 * i));
}

void repair(std::span<std::uint8_t> file) {
  if (file.size() < header_bytes) return;
  const std::string_view text = as_text(file);
  const std::size_t payload = file.size() - header_bytes;
  // A length that is off by more is an input of its own: it stays.
  const auto length = internal::from_little_endian<std::uint64_t>(text.substr(length_at, 8));
  if (length < 65536) put(file, length_at, payload, sizeof(std::uint64_t));
  put(file, payload_checksum_at, internal::crc32(text.substr(header_bytes)), sizeof(std::uint32_t));
  put(file, header_checksum_at, internal::crc32(text.substr(0, header_checksum_at)),
      sizeof(std::uint32_t));
}

std::vector<Seed> seeds() {
  using internal::testing_support::kolo_file;
  const std::string nothing = internal::encode(internal::CheckpointPayload{});
  const std::string parts =
      internal::encode(internal::CheckpointPayload{{{"model", "bytes"}}, {{}, {{"random", "x"}}}});
  return {{"empty", kolo_file({}, nothing)},
          {"first", kolo_file({.step = 3}, parts, 1)},
          {"metric", kolo_file({.step = 1000, .metric = 0.25, .serial = 7}, parts)}};
}

}  // namespace

const Target kolo_file_target{
    .name = "kolo_file", .max_bytes = 256, .run = run, .seeds = seeds, .repair = repair};

}  // namespace kolo::internal::fuzz
