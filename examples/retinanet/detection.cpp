#include "detection.hpp"

#include <algorithm>
#include <cmath>

namespace retinanet {
namespace {

struct Candidate {
  std::size_t place;  // in the logits
  float logit;
};

// In order of the logits, of equal ones in that of their places.
std::vector<Candidate> best_candidates(std::span<const float> logits,
                                       const DetectorOptions& options) {
  const double least_logit = std::log(options.least_score / (1.0 - options.least_score));
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > least_logit) found.push_back({i, logits[i]});
  }
  const std::size_t count = std::min(options.candidates, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.place < b.place;
                    });
  found.resize(count);
  return found;
}

// From the network's picture to the picture itself.
Box placed(const Box& box, const Fit& fit) {
  const auto along = [&](double value, std::size_t most) {
    return std::clamp(value / fit.scale, 0.0, static_cast<double>(most));
  };
  return {.left = along(box.left, fit.width),
          .top = along(box.top, fit.height),
          .right = along(box.right, fit.width),
          .bottom = along(box.bottom, fit.height)};
}

}  // namespace

std::vector<Detection> without_duplicates(std::vector<Detection> detections, double most_overlap) {
  std::stable_sort(detections.begin(), detections.end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  std::vector<Detection> kept;
  for (const Detection& detection : detections) {
    const bool is_duplicate = std::any_of(kept.begin(), kept.end(), [&](const Detection& better) {
      return better.category == detection.category &&
             overlap(better.box, detection.box) > most_overlap;
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
    if (box.width() <= 0.0 || box.height() <= 0.0) continue;  // outside the picture
    found.push_back({.picture = picture,
                     .category = static_cast<std::int64_t>(candidate.place % categories),
                     .box = box,
                     .score = 1.0 / (1.0 + std::exp(-static_cast<double>(candidate.logit)))});
  }
  found = without_duplicates(std::move(found), options.most_overlap);
  if (found.size() > options.most) found.resize(options.most);
  return found;
}

}  // namespace retinanet
