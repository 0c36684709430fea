// CIFAR-10 as TFRecords: of each image an Example with `image`, 3072 bytes in planes R, G, B, and
// `label`, an integer from 0 to 9.
#pragma once

#include <cstddef>
#include <filesystem>

#include "dataset.hpp"

namespace tfrecord {

/// Appends the images of a file. Throws RecordError, also if a record is no such Example.
void append_images(cifar10::Dataset& dataset, const std::filesystem::path& file);

/// All images of the files `*.tfrecords` in a folder, by the names of the files. Throws
/// RecordError, and std::runtime_error if there is no such file.
[[nodiscard]] cifar10::Dataset read_images(const std::filesystem::path& folder);

/// Writes images `first` to `first + count - 1`. Throws std::runtime_error.
void write_images(const std::filesystem::path& file, const cifar10::Dataset& dataset,
                  std::size_t first, std::size_t count);

}  // namespace tfrecord
