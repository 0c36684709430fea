// SPDX-License-Identifier: Apache-2.0
// CIFAR-10's binary files.
#include <algorithm>

#include "dataset.hpp"
#include "memory_file.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

constexpr std::size_t plane = cifar10::side * cifar10::side;

/// The records as they are in the file.
std::vector<std::uint8_t> write(const cifar10::Dataset& dataset) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    bytes.push_back(dataset.labels[i]);
    const auto image = dataset.image(i);
    for (std::size_t channel = 0; channel < cifar10::channels; ++channel)
      for (std::size_t position = 0; position < plane; ++position)
        bytes.push_back(image[position * cifar10::channels + channel]);
  }
  return bytes;
}

/// The first byte is the number of records to read; the file begins after it.
bool run(Bytes bytes) {
  if (bytes.empty()) return false;
  static MemoryFile file;
  const Bytes contents = bytes.subspan(1);
  file.set(contents);
  cifar10::Dataset dataset;
  try {
    cifar10::append_file(dataset, file.path(), bytes.front() % 3);
  } catch (const std::runtime_error&) {
    return false;
  }
  require(std::ranges::equal(write(dataset), contents),
          "a file of images is another one when it is written again");
  return true;
}

std::vector<Seed> seeds() {
  std::string record(cifar10::record_bytes, '\x80');
  for (std::size_t i = 0; i < record.size(); ++i) record[i] = static_cast<char>(i * 7 / 3);
  std::string last = record;
  record.front() = 0;
  last.front() = 9;
  return {
      {"none", std::string(1, '\0')}, {"one", '\x01' + record}, {"two", '\x02' + record + last}};
}

}  // namespace

const Target cifar10_file_target{
    .name = "cifar10_file", .max_bytes = 2 * cifar10::record_bytes + 2, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
