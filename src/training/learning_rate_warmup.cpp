#include <fmt/format.h>

#include "kolo/error.hpp"
#include "kolo/training/learning_rate.hpp"

namespace kolo {

LearningRateWarmup::LearningRateWarmup(const LearningRateWarmupOptions& options)
    : options_(options) {
  if (options_.steps < 0) {
    throw InvalidArgument(fmt::format(
        "kolo::LearningRateWarmup: steps must not be negative, but is {}", options_.steps));
  }
}

double LearningRateWarmup::operator()(std::int64_t step) const {
  if (step >= options_.steps) return options_.to;
  if (step <= 0) return options_.from;
  const double way = static_cast<double>(step) / static_cast<double>(options_.steps);
  return options_.from + (options_.to - options_.from) * way;
}

}  // namespace kolo
