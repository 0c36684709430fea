// Pictures in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples {

enum class Colours : std::uint8_t { grey, rgb };

struct Image {
  std::size_t width = 0;
  std::size_t height = 0;
  Colours colours = Colours::grey;
  std::vector<std::uint8_t> pixels{};  ///< [height, width] from black to white, or [..., 3] of rgb.

  [[nodiscard]] std::size_t channels() const { return colours == Colours::rgb ? 3 : 1; }
};

/// A black image.
[[nodiscard]] Image blank_image(std::size_t width, std::size_t height, Colours colours);

/// Reads a file *.jpg, *.jpeg or *.png; its colours are made grey, or its greys colours. Throws
/// std::runtime_error, which names the file, if it is missing, damaged, cut off, or another kind of
/// file.
[[nodiscard]] Image read_image(const std::filesystem::path& file, Colours colours = Colours::grey);

/// Writes one of these kinds, by the file's name. Throws std::runtime_error.
void write_image(const std::filesystem::path& file, const Image& image);

/// True for a file's name that ends in one of these ways, in large or small letters.
[[nodiscard]] bool is_image(const std::filesystem::path& file);

/// An image of another size: each pixel is the mean of what it covers of the old one.
[[nodiscard]] Image resized(const Image& image, std::size_t width, std::size_t height);

}  // namespace examples
