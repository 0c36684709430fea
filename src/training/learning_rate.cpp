// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "training/best_metric.hpp"
#include "training/require.hpp"
#include "training/state_text.hpp"

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

constexpr const char* plateau_kind = "kolo.plateau.1";

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

ReduceOnPlateau::ReduceOnPlateau(const ReduceOnPlateauOptions& options)
    : options_(options), best_(options.improvement), learning_rate_(options.learning_rate) {
  const char* owner = "ReduceOnPlateau";
  require_valid(options.improvement, owner);
  require(std::isfinite(options.learning_rate) && options.learning_rate > 0.0,
          "kolo::{}: learning_rate must be positive, but is {}", owner, options.learning_rate);
  require(options.factor >= 0.0 && options.factor < 1.0,
          "kolo::{}: factor must be from 0 to below 1, but is {}", owner, options.factor);
  require(options.patience >= 0, "kolo::{}: patience must not be negative, but is {}", owner,
          options.patience);
  require(options.cooldown >= 0, "kolo::{}: cooldown must not be negative, but is {}", owner,
          options.cooldown);
  require(std::isfinite(options.minimum) && options.minimum >= 0.0,
          "kolo::{}: minimum must be finite and not negative, but is {}", owner, options.minimum);
}

bool ReduceOnPlateau::update(double metric, double weight) {
  const double average = average_over(metric, weight, options_.process_set, "ReduceOnPlateau");
  bad_ = best_.improve(average) ? 0 : bad_ + 1;
  // During a cooldown the metric may still improve the best value, but bad updates do not count.
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return false;
  bad_ = 0;
  cooling_ = options_.cooldown;
  // A rate at the minimum, or below it from the start, does not change.
  const double reduced = std::max(learning_rate_ * options_.factor, options_.minimum);
  if (reduced >= learning_rate_) return false;
  learning_rate_ = reduced;
  return true;
}

std::string ReduceOnPlateau::state() const {
  StateWriter writer(plateau_kind);
  write_best(writer, best_.best());
  return writer.add(learning_rate_).add(bad_).add(cooling_).text();
}

void ReduceOnPlateau::load_state(const std::string& state) {
  StateReader reader(plateau_kind, state);
  const std::optional<double> best = read_best(reader);
  const double learning_rate = reader.real();
  const std::int64_t bad = reader.integer();
  const std::int64_t cooling = reader.integer();
  reader.end();
  best_.set_best(best);
  learning_rate_ = learning_rate;
  bad_ = bad;
  cooling_ = cooling;
}

}  // namespace kolo
