// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kolo/training/learning_rate.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;
namespace {

void require_not_negative(const char* what, double value) {
  require(std::isfinite(value) && value >= 0.0,
          "kolo::LearningRateSchedule: {} must be finite and not negative, but is {}", what, value);
}

void require_valid_cosine(const LearningRateScheduleOptions& options) {
  require_not_negative("cosine", options.cosine);
  if (options.cosine == 0.0) return;
  require(options.milestones.empty() && options.decay_every == 0.0 && !options.multiplier,
          "kolo::LearningRateSchedule: a cosine cannot be combined with milestones, decay_every or "
          "a multiplier");
  require(options.minimum <= options.peak,
          "kolo::LearningRateSchedule: a cosine falls from peak to minimum, but peak is {} and "
          "minimum is {}",
          options.peak, options.minimum);
}

void require_valid(const LearningRateScheduleOptions& options) {
  require_not_negative("peak", options.peak);
  require_not_negative("warmup_from", options.warmup_from);
  require_not_negative("warmup", options.warmup);
  require_not_negative("decay", options.decay);
  require_not_negative("decay_every", options.decay_every);
  require_not_negative("minimum", options.minimum);
  double before = 0.0;
  for (const LearningRateMilestone& milestone : options.milestones) {
    require_not_negative("a milestone's epoch", milestone.epoch);
    require_not_negative("a milestone's factor", milestone.factor);
    require(milestone.epoch >= before,
            "kolo::LearningRateSchedule: milestones must be in ascending order, but epoch {} "
            "follows epoch {}",
            milestone.epoch, before);
    before = milestone.epoch;
  }
  require(options.steps_per_epoch >= 1,
          "kolo::LearningRateSchedule: steps_per_epoch must be at least 1, but is {}",
          options.steps_per_epoch);
  require_valid_cosine(options);
}

}  // namespace

LearningRateWarmup::LearningRateWarmup(const LearningRateWarmupOptions& options)
    : options_(options) {
  require(options_.steps >= 0, "kolo::LearningRateWarmup: steps must not be negative, but is {}",
          options_.steps);
}

double LearningRateWarmup::operator()(std::int64_t step) const {
  if (step >= options_.steps) return options_.to;
  if (step <= 0) return options_.from;
  const double way = static_cast<double>(step) / static_cast<double>(options_.steps);
  return options_.from + (options_.to - options_.from) * way;
}

LearningRateSchedule::LearningRateSchedule(LearningRateScheduleOptions options)
    : options_(std::move(options)) {
  require_valid(options_);
}

double LearningRateSchedule::factor_at(double epochs) const {
  double factor = 1.0;
  for (const LearningRateMilestone& milestone : options_.milestones) {
    if (epochs >= milestone.epoch) factor *= milestone.factor;
  }
  const double time = options_.staircase ? std::floor(epochs) : epochs;
  if (options_.decay_every > 0.0) {
    const double times = time / options_.decay_every;
    factor *= std::pow(options_.decay, options_.staircase ? std::floor(times) : times);
  }
  if (options_.multiplier) factor *= options_.multiplier(time);
  return factor;
}

double LearningRateSchedule::cosine_at(double epochs) const {
  const double way = std::clamp((epochs - options_.warmup) / options_.cosine, 0.0, 1.0);
  const double factor = (1.0 + std::cos(std::numbers::pi * way)) / 2.0;
  return options_.minimum + (options_.peak - options_.minimum) * factor;
}

double LearningRateSchedule::operator()(std::int64_t step) const {
  step = std::max<std::int64_t>(step, 0);
  const double epochs = static_cast<double>(step) / static_cast<double>(options_.steps_per_epoch);
  const double factor = factor_at(epochs);
  if (epochs < options_.warmup) {
    const double way = epochs / options_.warmup;
    return (options_.warmup_from + (options_.peak - options_.warmup_from) * way) * factor;
  }
  if (options_.cosine > 0.0) return cosine_at(epochs);
  return std::max(options_.peak * factor, options_.minimum);
}

double LearningRateSchedule::momentum_correction(std::int64_t step) const {
  if (step <= 0) return 1.0;
  const double before = (*this)(step - 1);
  const double now = (*this)(step);
  return before > 0.0 ? now / before : 1.0;
}

}  // namespace kolo
