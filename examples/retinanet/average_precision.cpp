// SPDX-License-Identifier: Apache-2.0
#include "average_precision.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

namespace retinanet {
namespace {

constexpr std::size_t max_detections = 100;  // per picture and category
constexpr std::size_t thresholds = 10;
constexpr std::size_t recalls = 101;

// From 0.5 to 0.95, rounded as in COCO's program, which also counts overlaps equal to them.
constexpr double threshold(std::size_t index) {
  return 0.5 + (0.95 - 0.5) / (thresholds - 1) * static_cast<double>(index);
}

struct Sizes {
  double min_area, max_area;
  [[nodiscard]] bool contain(double area) const { return area >= min_area && area <= max_area; }
};
constexpr std::array<Sizes, 4> all_sizes{
    {{0.0, 1e10}, {0.0, 32.0 * 32.0}, {32.0 * 32.0, 96.0 * 96.0}, {96.0 * 96.0, 1e10}}};

// One category in one image.
struct Scene {
  std::vector<Truth> truths{};
  std::vector<Detection> detections{};        // the best first
  std::vector<std::vector<double>> shared{};  // [detection][truth]
};

enum class Verdict : std::uint8_t { right, wrong, ignored };

struct Judged {
  double score;
  Verdict verdict;
};

// The truths that a detection may match, with the ignored ones last.
struct Candidates {
  std::vector<std::size_t> order;
  std::vector<bool> ignored;  // indexed as `truths`
};

Candidates candidates_of(const Scene& scene, const Sizes& sizes) {
  Candidates candidates;
  for (const Truth& truth : scene.truths) {
    candidates.ignored.push_back(truth.crowd || !sizes.contain(truth.area));
  }
  candidates.order.resize(scene.truths.size());
  std::iota(candidates.order.begin(), candidates.order.end(), std::size_t{0});
  std::stable_partition(candidates.order.begin(), candidates.order.end(),
                        [&](std::size_t truth) { return !candidates.ignored[truth]; });
  return candidates;
}

// Each detection in turn takes the remaining truth that it overlaps most, preferably one that is
// not ignored. A crowd can be taken any number of times.
void judge(const Scene& scene, const Sizes& sizes, double least, std::vector<Judged>& judged) {
  const Candidates candidates = candidates_of(scene, sizes);
  std::vector<bool> taken(scene.truths.size(), false);
  for (std::size_t i = 0; i < scene.detections.size(); ++i) {
    double best = std::min(least, 1.0 - 1e-10);
    std::optional<std::size_t> found;
    for (const std::size_t truth : candidates.order) {
      if (taken[truth] && !scene.truths[truth].crowd) continue;
      if (found && !candidates.ignored[*found] && candidates.ignored[truth]) break;
      if (scene.shared[i][truth] < best) continue;
      best = scene.shared[i][truth];
      found = truth;
    }
    Verdict verdict = Verdict::wrong;
    if (found) {
      taken[*found] = true;
      verdict = candidates.ignored[*found] ? Verdict::ignored : Verdict::right;
    } else if (!sizes.contain(scene.detections[i].box.area())) {
      verdict = Verdict::ignored;
    }
    judged.push_back({scene.detections[i].score, verdict});
  }
}

// The mean of the precisions at recalls 0, 0.01, ... 1, each the best at that recall or above.
double area_under_precision(std::vector<Judged> judged, std::size_t objects) {
  std::stable_sort(judged.begin(), judged.end(),
                   [](const Judged& a, const Judged& b) { return a.score > b.score; });
  std::vector<double> recall, precision;
  double right = 0.0, counted = 0.0;
  for (const Judged& detection : judged) {
    if (detection.verdict == Verdict::ignored) continue;
    counted += 1.0;
    right += detection.verdict == Verdict::right ? 1.0 : 0.0;
    recall.push_back(right / static_cast<double>(objects));
    precision.push_back(right / counted);
  }
  for (std::size_t i = precision.size(); i > 1; --i) {
    precision[i - 2] = std::max(precision[i - 2], precision[i - 1]);
  }
  double sum = 0.0;
  for (std::size_t step = 0; step < recalls; ++step) {
    const double wanted = 0.01 * static_cast<double>(step);  // rounded as in COCO's program
    const auto reached = std::lower_bound(recall.begin(), recall.end(), wanted);
    if (reached == recall.end()) break;
    sum += precision[static_cast<std::size_t>(reached - recall.begin())];
  }
  return sum / recalls;
}

using Scenes = std::map<std::int64_t, std::map<std::int64_t, Scene>>;  // by category and picture

Scenes scenes_of(const std::vector<Truth>& truths, const std::vector<Detection>& detections) {
  Scenes scenes;
  for (const Truth& truth : truths) {
    scenes[truth.category][truth.picture].truths.push_back(truth);
  }
  for (const Detection& detection : detections) {
    scenes[detection.category][detection.picture].detections.push_back(detection);
  }
  for (auto& [category, pictures] : scenes) {
    for (auto& [picture, scene] : pictures) {
      auto& found = scene.detections;
      std::stable_sort(found.begin(), found.end(),
                       [](const Detection& a, const Detection& b) { return a.score > b.score; });
      if (found.size() > max_detections) found.resize(max_detections);
      for (const Detection& detection : found) {
        std::vector<double>& row = scene.shared.emplace_back();
        for (const Truth& truth : scene.truths) {
          row.push_back(truth.crowd ? part_inside(detection.box, truth.box)
                                    : overlap(detection.box, truth.box));
        }
      }
    }
  }
  return scenes;
}

using Precisions = std::array<double, thresholds>;

// The average precision of one category; nothing if it has no objects of these sizes.
std::optional<Precisions> precisions_of(const std::map<std::int64_t, Scene>& pictures,
                                        const Sizes& sizes) {
  std::size_t objects = 0;
  for (const auto& [picture, scene] : pictures) {
    for (const Truth& truth : scene.truths) {
      objects += !truth.crowd && sizes.contain(truth.area) ? 1U : 0U;
    }
  }
  if (objects == 0) return std::nullopt;
  Precisions precisions{};
  for (std::size_t i = 0; i < thresholds; ++i) {
    std::vector<Judged> judged;
    for (const auto& [picture, scene] : pictures) judge(scene, sizes, threshold(i), judged);
    precisions[i] = area_under_precision(std::move(judged), objects);
  }
  return precisions;
}

// The mean over the categories.
Precisions mean_precisions(const Scenes& scenes, const Sizes& sizes) {
  Precisions sums{};
  int categories = 0;
  for (const auto& [category, pictures] : scenes) {
    const auto precisions = precisions_of(pictures, sizes);
    if (!precisions) continue;
    ++categories;
    for (std::size_t i = 0; i < thresholds; ++i) sums[i] += (*precisions)[i];
  }
  for (double& sum : sums) {
    sum = categories > 0 ? sum / categories : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

double mean_of(const Precisions& precisions) {
  return std::accumulate(precisions.begin(), precisions.end(), 0.0) / thresholds;
}

}  // namespace

AveragePrecision average_precision(const std::vector<Truth>& truths,
                                   const std::vector<Detection>& detections) {
  const Scenes scenes = scenes_of(truths, detections);
  const Precisions all = mean_precisions(scenes, all_sizes[0]);
  return {.all = mean_of(all),
          .at_50 = all[0],
          .at_75 = all[5],
          .small = mean_of(mean_precisions(scenes, all_sizes[1])),
          .medium = mean_of(mean_precisions(scenes, all_sizes[2])),
          .large = mean_of(mean_precisions(scenes, all_sizes[3]))};
}

}  // namespace retinanet
