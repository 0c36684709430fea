// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "example.hpp"
#include "record_file.hpp"

namespace tfrecord {
namespace {

namespace fs = std::filesystem;
using cifar10::channels, cifar10::image_bytes;
constexpr std::size_t plane = cifar10::side * cifar10::side;

template <typename List>
const List* find(const Example& example, const std::string& name) {
  const auto found = example.find(name);
  return found == example.end() ? nullptr : std::get_if<List>(&found->second);
}

void append(cifar10::Dataset& dataset, const Example& example) {
  const auto* image = find<Bytes>(example, "image");
  const auto* label = find<Integers>(example, "label");
  if (image == nullptr || image->size() != 1 || image->front().size() != image_bytes) {
    throw ExampleError(0, fmt::format("the example has no 'image' of {} bytes", image_bytes));
  }
  constexpr auto classes = static_cast<std::int64_t>(cifar10::classes);
  if (label == nullptr || label->size() != 1 || label->front() < 0 || label->front() >= classes) {
    throw ExampleError(0, fmt::format("the example has no 'label' from 0 to {}", classes - 1));
  }
  dataset.labels.push_back(static_cast<std::uint8_t>(label->front()));
  for (std::size_t position = 0; position < plane; ++position) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const char byte = image->front()[channel * plane + position];
      dataset.pixels.push_back(static_cast<std::uint8_t>(byte));
    }
  }
}

std::string serialized(const cifar10::Dataset& dataset, std::size_t index) {
  std::string planes(image_bytes, '\0');
  const auto pixels = dataset.image(index);
  for (std::size_t i = 0; i < image_bytes; ++i) {
    planes[i % channels * plane + i / channels] = static_cast<char>(pixels[i]);
  }
  return serialize_example({{"image", Bytes{planes}}, {"label", Integers{dataset.labels[index]}}});
}

}  // namespace

void append_images(cifar10::Dataset& dataset, const fs::path& file) {
  RecordReader reader(file);
  while (const auto record = reader.next()) {
    try {
      append(dataset, parse_example(*record));
    } catch (const ExampleError& error) {
      throw RecordError(Fault::corrupt, file, reader.data_offset() + error.offset(), error.what());
    }
  }
}

cifar10::Dataset read_images(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw std::runtime_error(fmt::format("the directory '{}' does not exist", folder.string()));
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tfrecords") files.push_back(entry.path());
  }
  if (files.empty()) {
    throw std::runtime_error(fmt::format("'{}' has no file *.tfrecords", folder.string()));
  }
  std::sort(files.begin(), files.end());
  cifar10::Dataset dataset;
  for (const fs::path& file : files) append_images(dataset, file);
  return dataset;
}

void write_images(const fs::path& file, const cifar10::Dataset& dataset, std::size_t first,
                  std::size_t count) {
  RecordWriter writer(file);
  for (std::size_t i = first; i < first + count; ++i) writer.write(serialized(dataset, i));
  writer.close();
}

}  // namespace tfrecord
