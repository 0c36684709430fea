// SPDX-License-Identifier: Apache-2.0
#include "image_file.hpp"

#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

namespace examples {
namespace {

namespace fs = std::filesystem;

struct DestroyTurbo {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Turbo = std::unique_ptr<void, DestroyTurbo>;

[[noreturn]] void fail(const char* doing, const fs::path& file, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot {} '{}': {}", doing, file.string(), why));
}

std::string extension_of(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

bool is_jpeg(const fs::path& file) {
  const std::string extension = extension_of(file);
  return extension == ".jpg" || extension == ".jpeg";
}

constexpr int turbo_format(Colors colors) { return colors == Colors::rgb ? TJPF_RGB : TJPF_GRAY; }

constexpr unsigned int png_format(Colors colors) {
  return colors == Colors::rgb ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
}

std::string content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("read", file, "it cannot be opened");
  return {std::istreambuf_iterator<char>(stream), {}};
}

// TurboJPEG, because it returns its errors. libjpeg instead calls a function that must not return,
// so that C++ would have to leave it by longjmp, or throw through C.
Image read_jpeg(const fs::path& file, Colors colors) {
  const std::string content = content_of(file);
  const auto* bytes = reinterpret_cast<const unsigned char*>(content.data());
  const Turbo turbo(tjInitDecompress());
  int width = 0, height = 0, sampling = 0, space = 0;
  if (tjDecompressHeader3(turbo.get(), bytes, content.size(), &width, &height, &sampling, &space) !=
      0) {
    fail("read", file, tjGetErrorStr2(turbo.get()));
  }
  Image image =
      blank_image(static_cast<std::size_t>(width), static_cast<std::size_t>(height), colors);
  // For a truncated file the library only warns and fills the rest with gray: treat it as an error.
  if (tjDecompress2(turbo.get(), bytes, content.size(), image.pixels.data(), width, 0, height,
                    turbo_format(colors), TJFLAG_STOPONWARNING) != 0) {
    fail("read", file, tjGetErrorStr2(turbo.get()));
  }
  return image;
}

void write_jpeg(const fs::path& file, const Image& image) {
  const Turbo turbo(tjInitCompress());
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int sampling = image.colors == Colors::rgb ? TJSAMP_420 : TJSAMP_GRAY;
  const int status = tjCompress2(turbo.get(), image.pixels.data(), static_cast<int>(image.width), 0,
                                 static_cast<int>(image.height), turbo_format(image.colors), &bytes,
                                 &size, sampling, /*quality=*/90, 0);
  const std::unique_ptr<unsigned char, decltype(&tjFree)> owner(bytes, &tjFree);
  if (status != 0) fail("write", file, tjGetErrorStr2(turbo.get()));
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!stream.flush()) fail("write", file, "the system refused");
}

// Also frees libpng's memory.
struct Png : png_image {
  Png() : png_image{} { version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(this); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

Image read_png(const fs::path& file, Colors colors) {
  Png png;
  if (png_image_begin_read_from_file(&png, file.c_str()) == 0) fail("read", file, png.message);
  png.format = png_format(colors);
  Image image = blank_image(png.width, png.height, colors);
  const png_color black{};  // background of transparent pixels
  const int done = png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr);
  if (done == 0 || (png.warning_or_error & PNG_IMAGE_WARNING) != 0) {
    fail("read", file, png.message);
  }
  return image;
}

void write_png(const fs::path& file, const Image& image) {
  Png png;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = png_format(image.colors);
  if (png_image_write_to_file(&png, file.c_str(), 0, image.pixels.data(), 0, nullptr) == 0) {
    fail("write", file, png.message);
  }
}

// The fraction of each old row or column that a new one covers.
struct Cover {
  std::size_t first = 0;
  std::vector<double> parts{};
};

std::vector<Cover> covers(std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<Cover> all(to);
  for (std::size_t i = 0; i < to; ++i) {
    const double begin = static_cast<double>(i) * scale;
    const double end = std::min(begin + scale, static_cast<double>(from));
    all[i].first = static_cast<std::size_t>(begin);
    for (std::size_t k = all[i].first; k < from && static_cast<double>(k) < end; ++k) {
      const auto left = static_cast<double>(k);
      all[i].parts.push_back((std::min(end, left + 1) - std::max(begin, left)) / scale);
    }
  }
  return all;
}

double mean_of(const Image& image, const Cover& rows, const Cover& columns, std::size_t channel) {
  const std::size_t channels = image.channels();
  double sum = 0.0;
  for (std::size_t i = 0; i < rows.parts.size(); ++i) {
    const std::size_t start = (rows.first + i) * image.width + columns.first;
    const std::uint8_t* values = image.pixels.data() + start * channels + channel;
    for (std::size_t k = 0; k < columns.parts.size(); ++k) {
      sum += rows.parts[i] * columns.parts[k] * values[k * channels];
    }
  }
  return sum;
}

}  // namespace

Image blank_image(std::size_t width, std::size_t height, Colors colors) {
  Image image{.width = width, .height = height, .colors = colors};
  image.pixels.resize(width * height * image.channels());
  return image;
}

Image read_image(const fs::path& file, Colors colors) {
  if (is_jpeg(file)) return read_jpeg(file, colors);
  if (extension_of(file) == ".png") return read_png(file, colors);
  fail("read", file, "it is neither .jpg nor .png");
}

void write_image(const fs::path& file, const Image& image) {
  if (is_jpeg(file)) return write_jpeg(file, image);
  if (extension_of(file) == ".png") return write_png(file, image);
  fail("write", file, "it is neither .jpg nor .png");
}

bool is_image(const fs::path& file) { return is_jpeg(file) || extension_of(file) == ".png"; }

Image resized(const Image& image, std::size_t width, std::size_t height) {
  const std::vector<Cover> rows = covers(image.height, height);
  const std::vector<Cover> columns = covers(image.width, width);
  const std::size_t channels = image.channels();
  Image result = blank_image(width, height, image.colors);
  std::uint8_t* pixel = result.pixels.data();
  for (const Cover& row : rows) {
    for (const Cover& column : columns) {
      for (std::size_t channel = 0; channel < channels; ++channel) {
        const double mean = mean_of(image, row, column, channel);
        *pixel++ = static_cast<std::uint8_t>(std::lround(std::min(mean, 255.0)));
      }
    }
  }
  return result;
}

}  // namespace examples
