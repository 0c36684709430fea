// What an evaluation found, for people.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "average_precision.hpp"
#include "coco.hpp"
#include "detection.hpp"

namespace retinanet {

/// Prints a line: `-` stands for sizes of which there is nothing.
void print(const std::string& part, std::size_t pictures, const AveragePrecision& precision);

/// Writes the first `count` pictures into the directory, as `<part>-<id>.jpg`: what is to be found
/// as thin white boxes, and the detections of at least this score with category and score. Throws
/// std::runtime_error.
void draw_results(const std::filesystem::path& directory, const std::string& part,
                  const DataSet& data, const std::vector<Detection>& detections, std::size_t count,
                  double least_score);

}  // namespace retinanet
