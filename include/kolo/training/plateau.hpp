// Decisions from a metric that stops getting better, the same on all ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// What is better: less (a loss) or more (an accuracy).
enum class Goal : std::uint8_t { minimum, maximum };

/// How much better than the best a metric must be to count.
struct Improvement {
  Goal goal = Goal::minimum;
  double threshold = 1e-4;  ///< Not negative.
  bool relative = true;     ///< The threshold is a fraction of the best; else a difference.
};

namespace detail {

/// The best metric so far, and how long it has been the best.
class BestMetric {
 public:
  explicit BestMetric(const Improvement& improvement) : improvement_(improvement) {}

  /// A NaN is never better; the first number always is.
  bool improve(double metric);

  [[nodiscard]] std::optional<double> best() const { return best_; }
  void set_best(std::optional<double> best) { best_ = best; }

 private:
  Improvement improvement_;
  std::optional<double> best_;
};

}  // namespace detail

struct ReduceOnPlateauOptions {
  double learning_rate = 0.0;  ///< At the start. Positive.
  Improvement improvement{};
  double factor = 0.1;   ///< What the rate is multiplied by; from 0 to below 1.
  int patience = 10;     ///< So many updates without improvement are suffered; one more reduces.
  int cooldown = 0;      ///< So many updates after a reduction do not count as bad.
  double minimum = 0.0;  ///< The rate does not fall below this.
  ProcessSet process_set{};  ///< Whose metrics are averaged.
};

/// Lowers the learning rate when a metric has stopped getting better. Decides from the metric's
/// average over the ranks, so that all take the same decision. Not thread-safe.
class ReduceOnPlateau {
 public:
  /// Throws InvalidArgument for an option that makes no sense; the message prints it.
  KOLO_EXPORT explicit ReduceOnPlateau(const ReduceOnPlateauOptions& options);

  /// To be called after each validation. `weight` is how much this rank's metric counts in the
  /// average, e.g. its number of examples. An average that is no number is no improvement; nor is
  /// one of weights that are all 0. True if the rate was lowered. Collective. Throws as `average`.
  KOLO_EXPORT bool update(double metric, double weight = 1.0);

  [[nodiscard]] double learning_rate() const { return learning_rate_; }
  /// The best average so far.
  [[nodiscard]] std::optional<double> best() const { return best_.best(); }

  /// For a checkpoint, and back: the options are not part of it. `load` throws InvalidArgument for
  /// anything but what `state` gave.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load(const std::string& state);

 private:
  ReduceOnPlateauOptions options_;
  detail::BestMetric best_;
  double learning_rate_;
  std::int64_t bad_ = 0;
  std::int64_t cooling_ = 0;
};

struct EarlyStoppingOptions {
  Improvement improvement{.threshold = 0.0};
  int patience = 10;         ///< So many updates without improvement are suffered; one more stops.
  ProcessSet process_set{};  ///< Whose metrics are averaged.
};

/// Says when to end training because a metric has stopped getting better. Decides from the metric's
/// average over the ranks, so that all stop together. Not thread-safe.
class EarlyStopping {
 public:
  /// Throws InvalidArgument for an option that makes no sense; the message prints it.
  KOLO_EXPORT explicit EarlyStopping(const EarlyStoppingOptions& options);

  /// As ReduceOnPlateau's. True if training should stop, now and ever after. Collective.
  KOLO_EXPORT bool update(double metric, double weight = 1.0);

  [[nodiscard]] bool stopped() const { return bad_ > options_.patience; }
  /// True if the last update was the best so far.
  [[nodiscard]] bool improved() const { return improved_; }
  /// The best average so far.
  [[nodiscard]] std::optional<double> best() const { return best_.best(); }

  /// As ReduceOnPlateau's.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load(const std::string& state);

 private:
  EarlyStoppingOptions options_;
  detail::BestMetric best_;
  std::int64_t bad_ = 0;
  bool improved_ = false;
};

}  // namespace kolo
