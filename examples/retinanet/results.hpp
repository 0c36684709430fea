// SPDX-License-Identifier: Apache-2.0
// Prints and draws the results of an evaluation.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "average_precision.hpp"
#include "coco.hpp"
#include "detection.hpp"

namespace retinanet {

/// Prints a line; `-` stands for sizes without objects.
void print(const std::string& part, std::size_t pictures, const AveragePrecision& precision);

/// Writes the first `count` images into the directory, as `<part>-<id>.jpg`, with the true objects
/// as thin white boxes, and the detections of at least `min_score` with category and score. Throws
/// std::runtime_error.
void draw_results(const std::filesystem::path& directory, const std::string& part,
                  const DataSet& data, const std::vector<Detection>& detections, std::size_t count,
                  double min_score);

}  // namespace retinanet
