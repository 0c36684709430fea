// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>

#include "kolo/collectives.hpp"
#include "training/require.hpp"
#include "training/state_text.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* plateau_kind = "kolo.plateau.1";
constexpr const char* stopping_kind = "kolo.early_stopping.1";

void require_valid(const Improvement& improvement, const char* owner) {
  require(std::isfinite(improvement.threshold) && improvement.threshold >= 0.0,
          "kolo::{}: threshold must be finite and not negative, but is {}", owner,
          improvement.threshold);
}

// The weighted mean over the ranks. It is NaN, which counts as no improvement, if no rank has any
// weight.
double average_over(double metric, double weight, const ProcessSet& set, const char* owner) {
  require(std::isfinite(weight) && weight >= 0.0,
          "kolo::{}: weight must be finite and not negative, but is {}", owner, weight);
  std::vector<double> sums{weight == 0.0 ? 0.0 : metric * weight, weight};
  allreduce(sums, {.op = ReduceOp::sum, .process_set = set});
  return sums[0] / sums[1];
}

void write(StateWriter& writer, const std::optional<double>& best) {
  writer.add(std::int64_t{best ? 1 : 0}).add(best.value_or(0.0));
}

std::optional<double> read_best(StateReader& reader) {
  const bool any = reader.integer() != 0;
  const double best = reader.real();
  return any ? std::optional(best) : std::nullopt;
}

}  // namespace

bool detail::BestMetric::improve(double metric) {
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
  write(writer, best_.best());
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

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), best_(options.improvement) {
  require_valid(options.improvement, "EarlyStopping");
  require(options.patience >= 0, "kolo::{}: patience must not be negative, but is {}",
          "EarlyStopping", options.patience);
}

bool EarlyStopping::update(double metric, double weight) {
  const double average = average_over(metric, weight, options_.process_set, "EarlyStopping");
  // Updates stay collective after the end, but the decision is final.
  if (stopped()) return true;
  improved_ = best_.improve(average);
  bad_ = improved_ ? 0 : bad_ + 1;
  return stopped();
}

std::string EarlyStopping::state() const {
  StateWriter writer(stopping_kind);
  write(writer, best_.best());
  return writer.add(bad_).add(std::int64_t{improved_ ? 1 : 0}).text();
}

void EarlyStopping::load_state(const std::string& state) {
  StateReader reader(stopping_kind, state);
  const std::optional<double> best = read_best(reader);
  const std::int64_t bad = reader.integer();
  const bool improved = reader.integer() != 0;
  reader.end();
  best_.set_best(best);
  bad_ = bad;
  improved_ = improved;
}

}  // namespace kolo
