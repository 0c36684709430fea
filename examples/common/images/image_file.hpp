// SPDX-License-Identifier: Apache-2.0
// Reads and writes image files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples {

enum class Colors : std::uint8_t { gray, rgb };

struct Image {
  std::size_t width = 0;
  std::size_t height = 0;
  Colors colors = Colors::gray;
  std::vector<std::uint8_t> pixels{};  ///< [height, width] from black to white, or [..., 3] of rgb.

  [[nodiscard]] std::size_t channels() const { return colors == Colors::rgb ? 3 : 1; }
};

/// A black image.
[[nodiscard]] Image blank_image(std::size_t width, std::size_t height, Colors colors);

/// Reads a *.jpg, *.jpeg or *.png file and converts it to gray or RGB. Throws std::runtime_error,
/// naming the file, if it is missing, damaged, truncated, or of another format.
[[nodiscard]] Image read_image(const std::filesystem::path& file, Colors colors = Colors::gray);

/// Writes one of these formats, chosen by the file's name. Throws std::runtime_error.
void write_image(const std::filesystem::path& file, const Image& image);

/// True for a file name with one of these extensions, in upper or lower case.
[[nodiscard]] bool is_image(const std::filesystem::path& file);

/// Resizes an image: each new pixel is the mean of the area that it covers in the old image.
[[nodiscard]] Image resized(const Image& image, std::size_t width, std::size_t height);

}  // namespace examples
