// Pictures in shades of grey.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace xray {

struct Image {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<std::uint8_t> pixels{};  ///< [height, width], from black to white.
};

/// Reads a file *.jpg, *.jpeg or *.png; colours become grey. Throws std::runtime_error, which names
/// the file, if it is missing, damaged, cut off, or another kind of file.
[[nodiscard]] Image read_image(const std::filesystem::path& file);

/// Writes one of these kinds, by the file's name. Throws std::runtime_error.
void write_image(const std::filesystem::path& file, const Image& image);

/// True for a file's name that ends in one of these ways, in large or small letters.
[[nodiscard]] bool is_image(const std::filesystem::path& file);

/// A square image of `side` pixels: each is the mean of what it covers of the old one.
[[nodiscard]] Image resized(const Image& image, std::size_t side);

}  // namespace xray
