// SPDX-License-Identifier: Apache-2.0
// Labeled images in memory, and the reader of CIFAR-10's binary files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace cifar10 {

inline constexpr std::size_t side = 32;     // pixels
inline constexpr std::size_t channels = 3;  // red, green, blue
inline constexpr std::size_t classes = 10;
inline constexpr std::size_t image_bytes = side * side * channels;
inline constexpr std::size_t record_bytes =
    1 + image_bytes;  // in a file: the label, then the image

inline constexpr std::size_t records_per_file = 10'000;

struct Dataset {
  std::vector<std::uint8_t> pixels;  ///< [n, 32, 32, 3]: the channels of a pixel are adjacent.
  std::vector<std::uint8_t> labels;  ///< [n], 0 to 9.

  [[nodiscard]] std::size_t size() const { return labels.size(); }
  [[nodiscard]] std::span<const std::uint8_t> image(std::size_t index) const {
    return std::span(pixels).subspan(index * image_bytes, image_bytes);
  }
  /// Keeps only the first `count` images.
  void keep_first(std::size_t count);
};

struct Data {
  Dataset train;
  Dataset test;
};

/// Appends the images of one file, whose records are a label byte and the planes R, G, B of 32x32
/// bytes. Throws std::runtime_error, naming the file, if it is missing, does not have exactly
/// `records` records, or has a label above 9.
void append_file(Dataset& dataset, const std::filesystem::path& file,
                 std::size_t records = records_per_file);

/// Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin from `directory` or from its
/// sub-directory cifar-10-batches-bin. Throws as `append_file`.
[[nodiscard]] Data read_cifar10(const std::filesystem::path& directory,
                                std::size_t records = records_per_file);

}  // namespace cifar10
