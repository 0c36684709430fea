// SPDX-License-Identifier: Apache-2.0
// A decision, equal on all ranks, to end training when a metric stops improving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/training/best_metric.hpp"

namespace kolo {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  Improvement improvement{.threshold = 0.0};
  int patience = 10;         ///< Updates without improvement to tolerate; the next one stops.
  ProcessSet process_set{};  ///< Ranks whose metrics are averaged.
};

/// Decides to end training when a metric stops improving. Uses the metric's average over the ranks,
/// so that all ranks stop together. Not thread-safe.
class EarlyStopping {
 public:
  /// Throws InvalidArgument for an invalid option and names it.
  KOLO_EXPORT explicit EarlyStopping(const EarlyStoppingOptions& options);

  /// Call it after each validation, with the arguments of `ReduceOnPlateau::update`. Returns true
  /// if training should stop, and again in every later call. Collective. Throws the errors of
  /// `average`.
  KOLO_EXPORT bool update(double metric, double weight = 1.0);

  [[nodiscard]] bool stopped() const { return bad_ > options_.patience; }
  /// True if the last update improved on the best average.
  [[nodiscard]] bool improved() const { return improved_; }
  /// The best average so far.
  [[nodiscard]] std::optional<double> best() const { return best_.best(); }

  /// Save and restore the state for a checkpoint, without the options. `load_state` throws
  /// InvalidArgument unless the string came from `state`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

 private:
  EarlyStoppingOptions options_;
  detail::BestMetric best_;
  std::int64_t bad_ = 0;
  bool improved_ = false;
};

}  // namespace kolo
