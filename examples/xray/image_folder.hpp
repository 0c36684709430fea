// SPDX-License-Identifier: Apache-2.0
// A directory with one folder of images for each of two classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace xray {

struct LabeledFile {
  std::filesystem::path path{};
  std::int64_t label = 0;  ///< 0 or 1.
};

struct ImageFolder {
  std::vector<std::string> classes{};  ///< Folder names in order; label 1 is the positive class.
  std::vector<LabeledFile> files{};    ///< By label and name: equal on ranks with equal folders.
};

/// Finds the images: *.jpg, *.jpeg and *.png. Throws std::runtime_error unless `directory` has two
/// folders with images.
[[nodiscard]] ImageFolder read_folder(const std::filesystem::path& directory);

struct Split {
  std::vector<LabeledFile> train{};
  std::vector<LabeledFile> validation{};
};

/// Selects about this fraction of each class for validation, at least one image, by the seed.
[[nodiscard]] Split split(const ImageFolder& folder, double validation_fraction,
                          std::uint64_t seed);

/// Weights that make both classes count equally in the loss: the number of all images over twice
/// the number of the class's. Both classes must occur.
[[nodiscard]] std::vector<double> class_weights(const std::vector<LabeledFile>& files);

}  // namespace xray
