// What is found in a picture, from the network's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "box.hpp"

namespace retinanet {

struct Detection {
  std::int64_t picture = 0;  ///< Its place in the data set.
  std::int64_t category = 0;
  Box box{};  ///< In pixels of the picture.
  double score = 0.0;
};

/// Those that overlap no better one of their category by more than `most_overlap`, the best first.
/// Equal scores keep their order. All must be of one picture.
[[nodiscard]] std::vector<Detection> without_duplicates(std::vector<Detection> detections,
                                                        double most_overlap);

struct DetectorOptions {
  double least_score = 0.05;
  std::size_t candidates = 1000;  ///< So many of the best scores are looked at.
  double most_overlap = 0.5;      ///< Of two detections of one category.
  std::size_t most = 100;         ///< Detections in a picture.
};

/// How a picture was made to fit the network's: scaled, in the upper left corner.
struct Fit {
  double scale = 1.0;  ///< Pixels of the network's picture per pixel of the picture.
  std::size_t width = 0;
  std::size_t height = 0;  ///< Of the picture itself.
};

/// What the network says of one picture: `logits` are [anchors, categories], `offsets` [anchors,
/// 4].
[[nodiscard]] std::vector<Detection> detect(std::int64_t picture, const std::vector<Box>& anchors,
                                            std::span<const float> logits,
                                            std::span<const float> offsets, const Fit& fit,
                                            const DetectorOptions& options = {});

}  // namespace retinanet
