// SPDX-License-Identifier: Apache-2.0
// Converts the network's outputs to detections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "box.hpp"

namespace retinanet {

struct Detection {
  std::int64_t picture = 0;  ///< Index in the data set.
  std::int64_t category = 0;
  Box box{};  ///< In pixels of the original image.
  double score = 0.0;
};

/// Non-maximum suppression: removes detections that overlap a better one of their category by more
/// than `max_overlap`. Returns the best first; equal scores keep their order. All must be in one
/// image.
[[nodiscard]] std::vector<Detection> without_duplicates(std::vector<Detection> detections,
                                                        double max_overlap);

struct DetectorOptions {
  double min_score = 0.05;
  std::size_t candidates = 1000;  ///< Number of best scores to consider.
  double max_overlap = 0.5;  ///< Overlap at which one of two detections of a category is removed.
  std::size_t max_detections = 100;  ///< Per picture.
};

/// How an image was fitted into the network's input: scaled, in the upper left corner.
struct Fit {
  double scale = 1.0;  ///< Pixels of the input per pixel of the original.
  std::size_t width = 0;
  std::size_t height = 0;  ///< Height of the original.
};

/// The network's outputs for one image: `logits` are [anchors, categories], `offsets` are
/// [anchors, 4].
[[nodiscard]] std::vector<Detection> detect(std::int64_t picture, const std::vector<Box>& anchors,
                                            std::span<const float> logits,
                                            std::span<const float> offsets, const Fit& fit,
                                            const DetectorOptions& options = {});

}  // namespace retinanet
