// SPDX-License-Identifier: Apache-2.0
// The best value of a metric so far, and how much better another value must be.
#pragma once

#include <cstdint>
#include <optional>

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

}  // namespace kolo
