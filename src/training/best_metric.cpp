// SPDX-License-Identifier: Apache-2.0
#include "training/best_metric.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include "kolo/collectives.hpp"
#include "training/require.hpp"

namespace kolo::internal {

void require_valid(const Improvement& improvement, const char* owner) {
  require(std::isfinite(improvement.threshold) && improvement.threshold >= 0.0,
          "kolo::{}: threshold must be finite and not negative, but is {}", owner,
          improvement.threshold);
}

double average_over(double metric, double weight, const ProcessSet& set, const char* owner) {
  require(std::isfinite(weight) && weight >= 0.0,
          "kolo::{}: weight must be finite and not negative, but is {}", owner, weight);
  std::vector<double> sums{weight == 0.0 ? 0.0 : metric * weight, weight};
  allreduce(sums, {.op = ReduceOp::sum, .process_set = set});
  return sums[0] / sums[1];
}

void write_best(StateWriter& writer, const std::optional<double>& best) {
  writer.add(std::int64_t{best ? 1 : 0}).add(best.value_or(0.0));
}

std::optional<double> read_best(StateReader& reader) {
  const bool any = reader.integer() != 0;
  const double best = reader.real();
  return any ? std::optional(best) : std::nullopt;
}

}  // namespace kolo::internal

namespace kolo::detail {

bool BestMetric::improve(double metric) {
  if (std::isnan(metric)) return false;
  if (best_) {
    // A fraction of an infinite best is undefined: the threshold is then absolute.
    const double scale = improvement_.relative && std::isfinite(*best_) ? std::abs(*best_) : 1.0;
    const double margin = improvement_.threshold * scale;
    const bool better =
        improvement_.goal == Goal::minimum ? metric < *best_ - margin : metric > *best_ + margin;
    if (!better) return false;
  }
  best_ = metric;
  return true;
}

}  // namespace kolo::detail
