// SPDX-License-Identifier: Apache-2.0
// Lowers the learning rate or stops training, on all ranks, when a metric stops improving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// Whether a metric should fall (a loss) or rise (an accuracy).
enum class Goal : std::uint8_t { minimum, maximum };

/// The margin by which a metric must beat the best one to count as an improvement.
struct Improvement {
  Goal goal = Goal::minimum;
  double threshold = 1e-4;  ///< Not negative.
  bool relative = true;     ///< True: `threshold` is a fraction of the best metric; else absolute.
};

namespace detail {

/// The best metric so far.
class BestMetric {
 public:
  explicit BestMetric(const Improvement& improvement) : improvement_(improvement) {}

  /// Returns true and records the metric if it is an improvement. A NaN never is; the first number
  /// always is.
  bool improve(double metric);

  [[nodiscard]] std::optional<double> best() const { return best_; }
  void set_best(std::optional<double> best) { best_ = best; }

 private:
  Improvement improvement_;
  std::optional<double> best_;
};

}  // namespace detail

struct ReduceOnPlateauOptions {
  double learning_rate = 0.0;  ///< Initial rate; positive.
  Improvement improvement{};
  double factor = 0.1;  ///< Factor for the rate; at least 0 and below 1.
  int patience = 10;    ///< Updates without improvement to tolerate; the next one reduces the rate.
  int cooldown = 0;     ///< Updates to ignore after a reduction of the rate.
  double minimum = 0.0;      ///< Lower bound of the rate.
  ProcessSet process_set{};  ///< Ranks whose metrics are averaged.
};

/// Lowers the learning rate when a metric stops improving. Uses the metric's average over the
/// ranks, so that all ranks make the same decision. Not thread-safe.
class ReduceOnPlateau {
 public:
  /// Throws InvalidArgument for an invalid option and names it.
  KOLO_EXPORT explicit ReduceOnPlateau(const ReduceOnPlateauOptions& options);

  /// Call it after each validation. Returns true if it lowered the rate. `weight` is the weight of
  /// this rank's metric in the average, for example its number of examples. A NaN average is no
  /// improvement, and neither is an average with all weights 0. Collective. Throws the errors of
  /// `average`.
  KOLO_EXPORT bool update(double metric, double weight = 1.0);

  [[nodiscard]] double learning_rate() const { return learning_rate_; }
  /// The best average so far.
  [[nodiscard]] std::optional<double> best() const { return best_.best(); }

  /// Save and restore the state for a checkpoint, without the options. `load_state` throws
  /// InvalidArgument unless the string came from `state`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

 private:
  ReduceOnPlateauOptions options_;
  detail::BestMetric best_;
  double learning_rate_;
  std::int64_t bad_ = 0;
  std::int64_t cooling_ = 0;
};

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

  /// As `ReduceOnPlateau::update`, but returns true if training should stop, and again in every
  /// later call. Collective.
  KOLO_EXPORT bool update(double metric, double weight = 1.0);

  [[nodiscard]] bool stopped() const { return bad_ > options_.patience; }
  /// True if the last update improved on the best average.
  [[nodiscard]] bool improved() const { return improved_; }
  /// The best average so far.
  [[nodiscard]] std::optional<double> best() const { return best_.best(); }

  /// As `ReduceOnPlateau::state` and `load_state`.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

 private:
  EarlyStoppingOptions options_;
  detail::BestMetric best_;
  std::int64_t bad_ = 0;
  bool improved_ = false;
};

}  // namespace kolo
