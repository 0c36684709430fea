// A folder with a folder of images for each of two classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace xray {

struct LabelledFile {
  std::filesystem::path path{};
  std::int64_t label = 0;  ///< 0 or 1.
};

struct ImageFolder {
  std::vector<std::string> classes{};  ///< The folders' names in order; 1 is what is looked for.
  std::vector<LabelledFile> files{};   ///< By label and name: the same on ranks with equal folders.
};

/// Finds the images: *.jpg, *.jpeg and *.png. Throws std::runtime_error if there are not two
/// folders with images in `directory`.
[[nodiscard]] ImageFolder read_folder(const std::filesystem::path& directory);

struct Split {
  std::vector<LabelledFile> train{};
  std::vector<LabelledFile> validation{};
};

/// About this fraction of each class is for validation, at least one image; drawn by the seed.
[[nodiscard]] Split split(const ImageFolder& folder, double validation_fraction,
                          std::uint64_t seed);

/// What each class counts in the loss so that both count the same: all images over twice the
/// class' own. Both classes must occur.
[[nodiscard]] std::vector<double> class_weights(const std::vector<LabelledFile>& files);

}  // namespace xray
