// SPDX-License-Identifier: Apache-2.0
#include "image_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "image_file.hpp"

namespace xray {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> images_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file() && examples::is_image(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

ImageFolder read_folder(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw std::runtime_error(
        fmt::format("the data directory '{}' does not exist", directory.string()));
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_directory() && !images_in(entry.path()).empty()) folders.push_back(entry.path());
  }
  if (folders.size() != 2) {
    throw std::runtime_error(
        fmt::format("'{}' has {} folders with images; expected one for each of two classes",
                    directory.string(), folders.size()));
  }
  std::sort(folders.begin(), folders.end());
  ImageFolder found;
  for (const fs::path& folder : folders) {
    const auto label = static_cast<std::int64_t>(found.classes.size());
    found.classes.push_back(folder.filename().string());
    for (const fs::path& file : images_in(folder)) found.files.push_back({file, label});
  }
  return found;
}

Split split(const ImageFolder& folder, double validation_fraction, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Split parts;
  for (const std::int64_t label : {0, 1}) {
    std::vector<LabeledFile> files;
    for (const LabeledFile& file : folder.files) {
      if (file.label == label) files.push_back(file);
    }
    // A shuffle written out, because std::shuffle gives different orders with different compilers.
    for (std::size_t i = files.size(); i > 1; --i) std::swap(files[i - 1], files[random() % i]);
    const double wanted = std::round(static_cast<double>(files.size()) * validation_fraction);
    const auto held_back = files.begin() + static_cast<std::ptrdiff_t>(std::max(wanted, 1.0));
    parts.validation.insert(parts.validation.end(), files.begin(), held_back);
    parts.train.insert(parts.train.end(), held_back, files.end());
  }
  return parts;
}

std::vector<double> class_weights(const std::vector<LabeledFile>& files) {
  std::vector<double> counts(2, 0.0);
  for (const LabeledFile& file : files) ++counts[static_cast<std::size_t>(file.label)];
  const auto all = static_cast<double>(files.size());
  return {all / (2 * counts[0]), all / (2 * counts[1])};
}

}  // namespace xray
