// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 as TFRecords: each image is an Example with `image`, 3072 bytes in planes R, G, B, and
// `label`, an integer from 0 to 9.
#pragma once

#include <cstddef>
#include <filesystem>

#include "dataset.hpp"

namespace tfrecord {

/// Appends the images of a file. Throws RecordError, also for a record that is not such an Example.
void append_images(cifar10::Dataset& dataset, const std::filesystem::path& file);

/// Reads the images of all `*.tfrecords` files in a folder, in the order of file names. Throws
/// RecordError, and std::runtime_error if there is no such file.
[[nodiscard]] cifar10::Dataset read_images(const std::filesystem::path& folder);

/// Writes images `first` to `first + count - 1`. Throws std::runtime_error.
void write_images(const std::filesystem::path& file, const cifar10::Dataset& dataset,
                  std::size_t first, std::size_t count);

}  // namespace tfrecord
