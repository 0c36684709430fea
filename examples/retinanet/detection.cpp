// SPDX-License-Identifier: Apache-2.0
#include "detection.hpp"

#include <algorithm>
#include <cmath>

namespace retinanet {
namespace {

struct Candidate {
  std::size_t place;  // index in the logits
  float logit;
};

// Ordered by logit; equal logits by index, so that every rank and run gives the same order.
std::vector<Candidate> best_candidates(std::span<const float> logits,
                                       const DetectorOptions& options) {
  const double min_logit = std::log(options.min_score / (1.0 - options.min_score));
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > min_logit) found.push_back({i, logits[i]});
  }
  const std::size_t count = std::min(options.candidates, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.place < b.place;
                    });
  found.resize(count);
  return found;
}

// Converts from the network's image to the original.
Box placed(const Box& box, const Fit& fit) {
  const auto along = [&](double value, std::size_t side) {
    return std::clamp(value / fit.scale, 0.0, static_cast<double>(side));
  };
  return {.left = along(box.left, fit.width),
          .top = along(box.top, fit.height),
          .right = along(box.right, fit.width),
          .bottom = along(box.bottom, fit.height)};
}

}  // namespace

std::vector<Detection> without_duplicates(std::vector<Detection> detections, double max_overlap) {
  std::stable_sort(detections.begin(), detections.end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  std::vector<Detection> kept;
  for (const Detection& detection : detections) {
    const bool is_duplicate = std::any_of(kept.begin(), kept.end(), [&](const Detection& better) {
      return better.category == detection.category &&
             overlap(better.box, detection.box) > max_overlap;
    });
    if (!is_duplicate) kept.push_back(detection);
  }
  return kept;
}

std::vector<Detection> detect(std::int64_t picture, const std::vector<Box>& anchors,
                              std::span<const float> logits, std::span<const float> offsets,
                              const Fit& fit, const DetectorOptions& options) {
  const std::size_t categories = logits.size() / anchors.size();
  std::vector<Detection> found;
  for (const Candidate& candidate : best_candidates(logits, options)) {
    const std::size_t anchor = candidate.place / categories;
    const auto offset = offsets.subspan(4 * anchor, 4);
    const Box box =
        placed(decode(anchors[anchor], {offset[0], offset[1], offset[2], offset[3]}), fit);
    if (box.width() <= 0.0 || box.height() <= 0.0) continue;  // outside the image
    found.push_back({.picture = picture,
                     .category = static_cast<std::int64_t>(candidate.place % categories),
                     .box = box,
                     .score = 1.0 / (1.0 + std::exp(-static_cast<double>(candidate.logit)))});
  }
  found = without_duplicates(std::move(found), options.max_overlap);
  if (found.size() > options.max_detections) found.resize(options.max_detections);
  return found;
}

}  // namespace retinanet
