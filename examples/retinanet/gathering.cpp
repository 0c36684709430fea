// SPDX-License-Identifier: Apache-2.0
#include "gathering.hpp"

#include <algorithm>
#include <kolo/kolo.hpp>

namespace retinanet {

std::vector<std::int64_t> share_of(std::size_t pictures) {
  // KOLO: `uneven`, so that no image is skipped or counted twice.
  const kolo::DistributedSampler sampler({.examples = static_cast<std::int64_t>(pictures),
                                          .shuffle = false,
                                          .remainder = kolo::Remainder::uneven});
  return sampler.indices();
}

std::vector<Detection> gather(const std::vector<Detection>& mine) {
  std::vector<std::int64_t> labels;
  std::vector<double> values;
  for (const Detection& detection : mine) {
    labels.insert(labels.end(), {detection.picture, detection.category});
    values.insert(values.end(), {detection.box.left, detection.box.top, detection.box.right,
                                 detection.box.bottom, detection.score});
  }
  // KOLO: ranks have different numbers of detections.
  const std::vector<std::int64_t> all_labels = kolo::allgather(labels).values;
  const std::vector<double> all_values = kolo::allgather(values).values;

  std::vector<Detection> all;
  for (std::size_t i = 0; i < all_labels.size() / 2; ++i) {
    const double* value = all_values.data() + 5 * i;
    all.push_back({.picture = all_labels[2 * i],
                   .category = all_labels[2 * i + 1],
                   .box = {value[0], value[1], value[2], value[3]},
                   .score = value[4]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Detection& a, const Detection& b) { return a.picture < b.picture; });
  return all;
}

}  // namespace retinanet
