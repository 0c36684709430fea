// SPDX-License-Identifier: Apache-2.0
#include "results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "drawing.hpp"
#include "image_file.hpp"

namespace retinanet {
namespace {

std::string text_of(double value) {
  return std::isnan(value) ? std::string("-") : fmt::format("{:.4f}", value);
}

// Draws the best detections last, so that no other covers them.
void draw_detections(examples::Image& image, const DataSet& data,
                     const std::vector<const Detection*>& detections) {
  for (const Detection* found : detections) draw_box(image, found->box, color_of(found->category));
  for (const Detection* found : detections) {
    const std::string& name = data.categories[static_cast<std::size_t>(found->category)];
    draw_text(image, fmt::format("{} {:.0f}%", name, 100 * found->score), found->box.left,
              found->box.top, color_of(found->category));
  }
}

}  // namespace

void print(const std::string& part, std::size_t pictures, const AveragePrecision& precision) {
  fmt::print("{}: {} pictures, AP {}, AP50 {}, AP75 {}; small {}, medium {}, large {}\n", part,
             pictures, text_of(precision.all), text_of(precision.at_50), text_of(precision.at_75),
             text_of(precision.small), text_of(precision.medium), text_of(precision.large));
  std::fflush(stdout);
}

void draw_results(const std::filesystem::path& directory, const std::string& part,
                  const DataSet& data, const std::vector<Detection>& detections, std::size_t count,
                  double min_score) {
  std::filesystem::create_directories(directory);
  for (std::size_t place = 0; place < std::min(count, data.pictures.size()); ++place) {
    const Picture& picture = data.pictures[place];
    examples::Image image = examples::read_image(picture.file, examples::Colors::rgb);
    for (const Annotation& annotation : picture.annotations) {
      draw_box(image, annotation.object.box, {255, 255, 255}, 1);
    }
    std::vector<const Detection*> shown;
    for (const Detection& detection : detections) {
      const bool is_here = detection.picture == static_cast<std::int64_t>(place);
      if (is_here && detection.score >= min_score) shown.push_back(&detection);
    }
    std::stable_sort(shown.begin(), shown.end(),
                     [](const Detection* a, const Detection* b) { return a->score < b->score; });
    draw_detections(image, data, shown);
    examples::write_image(directory / fmt::format("{}-{}.jpg", part, picture.id), image);
  }
}

}  // namespace retinanet
