// SPDX-License-Identifier: Apache-2.0
// Images and their objects in COCO's format (https://cocodataset.org/#format-data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "average_precision.hpp"
#include "box.hpp"
#include "matching.hpp"

namespace retinanet {

struct Annotation {
  Object object{};    ///< In pixels of the image.
  double area = 0.0;  ///< Area of the object's outline.
};

struct Picture {
  std::int64_t id = 0;
  std::filesystem::path file{};
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<Annotation> annotations{};
};

struct DataSet {
  std::vector<std::string> categories{};  ///< Names, numbered from 0 in the order of their ids.
  std::vector<Picture> pictures{};        ///< In the order of their ids.

  /// The number of objects without crowds.
  [[nodiscard]] std::size_t objects() const;
};

/// Reads a file instances_*.json, without outlines, whose images are in `pictures`. Does not open
/// the images. Throws std::runtime_error, naming the file and the image or annotation: for a
/// missing or invalid file, a missing key or one of the wrong type, a repeated id, an annotation of
/// an unknown image or category, or a box that extends a pixel or more beyond its image.
[[nodiscard]] DataSet read_coco(const std::filesystem::path& annotations,
                                const std::filesystem::path& pictures);

/// Reads the part `train` or `val` of a directory with the layout of COCO's archives:
/// annotations/instances_train2017.json and train2017/. `2017` may be missing, and the image
/// folders may be in images/. Also throws std::runtime_error if there is no such file or folder.
[[nodiscard]] DataSet read_part(const std::filesystem::path& directory, const std::string& part);

/// The objects to find in all images. Images are identified by their index.
[[nodiscard]] std::vector<Truth> truths_of(const DataSet& data);

}  // namespace retinanet
