// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/early_stopping.hpp"

#include "training/best_metric.hpp"
#include "training/require.hpp"
#include "training/state_text.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* stopping_kind = "kolo.early_stopping.1";

}  // namespace

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
  write_best(writer, best_.best());
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
