// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/loss_scale.hpp"

#include <algorithm>
#include <cmath>

#include "training/require.hpp"
#include "training/state_text.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* loss_scale_kind = "kolo.loss_scale.1";

// Within these limits, the scale and its inverse are normal numbers in f32, and their product with
// a loss of ordinary size neither overflows nor underflows.
constexpr double min_scale = 0x1p-100;
constexpr double max_scale = 0x1p+100;

bool is_scale(double value) { return value >= min_scale && value <= max_scale; }

}  // namespace

LossScale::LossScale(const LossScaleOptions& options) : options_(options), value_(options.initial) {
  const char* owner = "LossScale";
  require(is_scale(options.initial), "kolo::{}: initial must be from 2^-100 to 2^100, but is {}",
          owner, options.initial);
  require(std::isfinite(options.growth_factor) && options.growth_factor > 1.0,
          "kolo::{}: growth_factor must be above 1, but is {}", owner, options.growth_factor);
  require(options.backoff_factor > 0.0 && options.backoff_factor < 1.0,
          "kolo::{}: backoff_factor must be above 0 and below 1, but is {}", owner,
          options.backoff_factor);
  require(options.growth_interval >= 1, "kolo::{}: growth_interval must be at least 1, but is {}",
          owner, options.growth_interval);
}

void LossScale::update(bool overflow) {
  if (overflow) {
    value_ = std::max(value_ * options_.backoff_factor, min_scale);
    good_ = 0;
  } else if (++good_ >= options_.growth_interval) {
    value_ = std::min(value_ * options_.growth_factor, max_scale);
    good_ = 0;
  }
}

std::string LossScale::state() const {
  return StateWriter(loss_scale_kind).add(value_).add(good_).text();
}

void LossScale::load_state(const std::string& state) {
  StateReader reader(loss_scale_kind, state);
  const double value = reader.real();
  const std::int64_t good = reader.integer();
  reader.end();
  require(is_scale(value) && good >= 0, "kolo::LossScale: '{}' has no valid scale", state);
  value_ = value;
  good_ = good;
}

}  // namespace kolo
