// SPDX-License-Identifier: Apache-2.0
#include "dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>

namespace cifar10 {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> read_records(const fs::path& file, std::size_t records) {
  const std::size_t wanted = records * record_bytes;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot read '{}': {}; expected a file of {} bytes",
                                         file.string(), error.message(), wanted));
  }
  if (size != wanted) {
    throw std::runtime_error(
        fmt::format("'{}' is truncated or not of CIFAR-10: expected {} bytes ({} records of {}), "
                    "found {} bytes",
                    file.string(), wanted, records, record_bytes, size));
  }
  std::vector<std::uint8_t> bytes(size);
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) {
    throw std::runtime_error(fmt::format("cannot read '{}': expected {} bytes, found {}",
                                         file.string(), size, stream.gcount()));
  }
  return bytes;
}

}  // namespace

void Dataset::keep_first(std::size_t count) {
  labels.resize(std::min(count, size()));
  pixels.resize(labels.size() * image_bytes);
}

void append_file(Dataset& dataset, const fs::path& file, std::size_t records) {
  const std::vector<std::uint8_t> bytes = read_records(file, records);
  const std::size_t before = dataset.size();
  dataset.labels.resize(before + records);
  dataset.pixels.resize((before + records) * image_bytes);

  for (std::size_t i = 0; i < records; ++i) {
    const std::uint8_t* record = bytes.data() + i * record_bytes;
    if (*record >= classes) {
      throw std::runtime_error(fmt::format("'{}': record {} has the label {}; expected 0 to {}",
                                           file.string(), i, *record, classes - 1));
    }
    dataset.labels[before + i] = *record;
    const std::uint8_t* planes = record + 1;
    std::uint8_t* pixel = dataset.pixels.data() + (before + i) * image_bytes;
    for (std::size_t position = 0; position < side * side; ++position) {
      for (std::size_t channel = 0; channel < channels; ++channel) {
        *pixel++ = planes[channel * side * side + position];
      }
    }
  }
}

Data read_cifar10(const fs::path& directory, std::size_t records) {
  const fs::path unpacked = directory / "cifar-10-batches-bin";
  const fs::path& folder = fs::is_directory(unpacked) ? unpacked : directory;
  if (!fs::is_directory(folder)) {
    throw std::runtime_error(
        fmt::format("the data directory '{}' does not exist", folder.string()));
  }
  Data data;
  for (int batch = 1; batch <= 5; ++batch) {
    append_file(data.train, folder / fmt::format("data_batch_{}.bin", batch), records);
  }
  append_file(data.test, folder / "test_batch.bin", records);
  return data;
}

}  // namespace cifar10
