// Pictures and their objects, as COCO's files have them (https://cocodataset.org/#format-data).
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
  Object object{};    ///< In pixels of the picture.
  double area = 0.0;  ///< Of the object's outline.
};

struct Picture {
  std::int64_t id = 0;
  std::filesystem::path file{};
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<Annotation> annotations{};
};

struct DataSet {
  std::vector<std::string> categories{};  ///< Names. Numbered from 0 in the order of their ids.
  std::vector<Picture> pictures{};        ///< In the order of their ids.

  /// Those that are no crowds.
  [[nodiscard]] std::size_t objects() const;
};

/// Reads a file instances_*.json, without outlines, whose pictures lie in `pictures`. Throws
/// std::runtime_error, which names the file and, where there is one, the picture or annotation: for
/// a file that is missing or no JSON, for a key that is missing or of the wrong type, an id that
/// occurs twice, an annotation of an unknown picture or category, or with a box that reaches a
/// pixel or more out of its picture. The pictures themselves are not looked at.
[[nodiscard]] DataSet read_coco(const std::filesystem::path& annotations,
                                const std::filesystem::path& pictures);

/// Reads one of the parts `train` and `val` of a directory as COCO's archives unpack:
/// annotations/instances_train2017.json and train2017/. `2017` may be missing, and the folders of
/// pictures may lie in images/. Throws std::runtime_error also if there is no such file or folder.
[[nodiscard]] DataSet read_part(const std::filesystem::path& directory, const std::string& part);

/// What is to be found in all pictures, which are known by their places.
[[nodiscard]] std::vector<Truth> truths_of(const DataSet& data);

}  // namespace retinanet
