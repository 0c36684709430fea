// SPDX-License-Identifier: Apache-2.0
#include "roc.hpp"

#include <algorithm>
#include <cstddef>
#include <kolo/collectives.hpp>
#include <limits>
#include <numeric>

namespace xray {

// Uses the Mann-Whitney statistic: sums the ranks of the scores with label 1; ties get the mean
// rank.
double area_under_curve(const Scored& scored) {
  const std::size_t count = scored.scores.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto score_at = [&](std::size_t place) { return scored.scores[order[place]]; };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return scored.scores[a] < scored.scores[b]; });

  double rank_sum = 0.0, positives = 0.0;
  for (std::size_t first = 0, last = 0; first < count; first = last) {
    while (last < count && score_at(last) == score_at(first)) ++last;
    const double mean_rank = static_cast<double>(first + 1 + last) / 2;
    for (std::size_t place = first; place < last; ++place) {
      if (scored.labels[order[place]] == 0) continue;
      rank_sum += mean_rank;
      positives += 1;
    }
  }
  const double negatives = static_cast<double>(count) - positives;
  if (positives == 0.0 || negatives == 0.0) return std::numeric_limits<double>::quiet_NaN();
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

double area_over_ranks(const Scored& scored, const kolo::ProcessSet& set) {
  // KOLO: ranks may have different numbers of images.
  const kolo::AllgatherOptions options{.process_set = set};
  return area_under_curve({.scores = kolo::allgather(scored.scores, options).values,
                           .labels = kolo::allgather(scored.labels, options).values});
}

}  // namespace xray
