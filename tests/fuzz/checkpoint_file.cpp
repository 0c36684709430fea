// SPDX-License-Identifier: Apache-2.0
// The file of a checkpoint: header, length and checksums.
#include "training/checkpoint_file.hpp"

#include <unistd.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <string>

#include "memory_file.hpp"
#include "target.hpp"
#include "training/bytes.hpp"

namespace kolo::internal::fuzz {
namespace {

constexpr std::size_t header_bytes = 48;
constexpr std::size_t length_at = 32;
constexpr std::size_t payload_checksum_at = 40;
constexpr std::size_t header_checksum_at = 44;

bool equal(const internal::CheckpointContents& a, const internal::CheckpointContents& b) {
  const auto bits = [](const std::optional<double>& metric) {
    return metric ? std::optional(std::bit_cast<std::uint64_t>(*metric)) : std::nullopt;
  };
  return a.header.step == b.header.step && bits(a.header.metric) == bits(b.header.metric) &&
         a.header.payload_bytes == b.header.payload_bytes &&
         a.header.payload_checksum == b.header.payload_checksum && a.payload == b.payload;
}

/// The bytes that `write_checkpoint` writes.
std::string write(std::int64_t step, const std::optional<double>& metric,
                  const std::string& payload) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("kolo-fuzz-" + std::to_string(::getpid()) + ".kolo");
  internal::write_checkpoint(path, step, metric, payload);
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return bytes;
}

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  internal::CheckpointContents first;
  try {
    first = internal::read_checkpoint(file.path());
  } catch (const CheckpointError&) {
    return false;
  }
  require(first.header.payload_bytes + header_bytes == bytes.size(), "a length that is wrong");
  // Writing waits for the disk, so only some inputs are written.
  static unsigned accepted = 0;
  constexpr unsigned written = 64;  // 1 of 64
  if (accepted++ % written != 0) return true;
  file.set(as_input(write(first.header.step, first.header.metric, first.payload)));
  require(equal(internal::read_checkpoint(file.path()), first),
          "a checkpoint is another one when it is written and read again");
  return true;
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
  return {{"empty", write(0, std::nullopt, "")},
          {"metric", write(1000, 0.25, "payload")},
          {"negative", write(-1, -0.0, std::string(64, 'x'))}};
}

}  // namespace

const Target checkpoint_file_target{
    .name = "checkpoint_file", .max_bytes = 256, .run = run, .seeds = seeds, .repair = repair};

}  // namespace kolo::internal::fuzz
