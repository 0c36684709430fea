// SPDX-License-Identifier: Apache-2.0
// The file of a checkpoint: its header, its checksums, and the parts of its tensors.
#include "training/checkpoint/checkpoint_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "../training/checkpoint_contents.hpp"
#include "kolo/training/checkpoint.hpp"
#include "memory_file.hpp"
#include "target.hpp"
#include "training/bytes.hpp"
#include "training/safetensors/safetensors_header.hpp"

namespace kolo::internal::fuzz {
namespace {

using internal::testing_support::Contents;
using internal::testing_support::read;

bool equal(const Contents& a, const Contents& b) {
  // A NaN as a metric is not equal to itself.
  return a.header.step == b.header.step && a.header.serial == b.header.serial &&
         a.header.metric.has_value() == b.header.metric.has_value() && a.parts == b.parts &&
         a.per_rank == b.per_rank;
}

/// The bytes of a file with these parts.
std::string write(internal::CheckpointHeader header, const NamedStates& parts,
                  const std::vector<NamedStates>& per_rank = {}) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("kolo-fuzz-" + std::to_string(::getpid()) + ".safetensors");
  header.ranks = static_cast<int>(per_rank.size());
  internal::write_checkpoint_file(path, header,
                                  internal::testing_support::file_of(parts, per_rank));
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return bytes;
}

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  Contents first;
  try {
    first = read(file.path());
  } catch (const CheckpointError&) {
    return false;
  }
  // Writing waits for the disk, so only some inputs are written.
  static unsigned accepted = 0;
  constexpr unsigned written = 64;  // 1 of 64
  if (accepted++ % written != 0) return true;
  first.header.files = 0;
  file.set(as_input(write(first.header, first.parts, first.per_rank)));
  require(equal(read(file.path()), first),
          "a checkpoint is another one when it is written and read again");
  return true;
}

/// Writes the checksum to the 8 digits after `key`, unless they are not there.
template <typename Checksum>
void repair_checksum(std::span<std::uint8_t> header, std::string_view key,
                     const Checksum& checksum) {
  const std::string before = '"' + std::string(key) + "\":\"";
  const std::size_t found = as_text(header).find(before);
  if (found == std::string_view::npos || found + before.size() + 8 > header.size()) return;
  const auto digits = header.subspan(found + before.size(), 8);
  std::ranges::fill(digits, std::uint8_t{'0'});
  std::ranges::copy(internal::print_checksum(checksum()), digits.begin());
}

void repair(std::span<std::uint8_t> file) {
  if (file.size() < 9) return;
  const auto length = internal::from_little_endian<std::uint64_t>(as_text(file));
  if (length > file.size() - 8) return;
  const auto header = file.subspan(8, length);
  const std::string_view data = as_text(file).substr(8 + length);
  repair_checksum(header, internal::data_checksum_key, [&] { return internal::crc32(data); });
  repair_checksum(header, internal::header_checksum_key,
                  [&] { return internal::crc32(as_text(header)); });
}

std::vector<Seed> seeds() {
  const std::vector<float> weight{1, 2, 3, 4};
  const StateDict tensors({{"0.weight", {weight.data(), Shape{2, 2}}}});
  const StateDict state({{"state.0.exp_avg", weight}}, {{"class", "Adam"}});
  const NamedStates parts{{"model", tensors}, {"sampler", "kolo.sampler.1 0 0 0 10 1"}, {"", ""}};
  return {{"empty", write({}, {})},
          {"metric", write({.step = 1000, .metric = 0.25, .serial = 7}, parts)},
          {"ranks", write({.step = 1}, {{"optimizer", state}},
                          {{{"random", tensors}}, {}, {{"random", "bytes"}}})}};
}

}  // namespace

const Target checkpoint_file_target{
    .name = "checkpoint_file", .max_bytes = 2048, .run = run, .seeds = seeds, .repair = repair};

}  // namespace kolo::internal::fuzz
