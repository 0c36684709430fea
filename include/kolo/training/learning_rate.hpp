// SPDX-License-Identifier: Apache-2.0
// Learning rates as functions of the step, and a rate that all ranks lower alike when a metric
// stops improving.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/training/best_metric.hpp"

namespace kolo {

/// Options of LearningRateWarmup.
struct LearningRateWarmupOptions {
  double from = 0.0;       ///< The learning rate at step 0.
  double to = 0.0;         ///< The learning rate from step `steps` on.
  std::int64_t steps = 0;  ///< Number of steps from `from` to `to`; 0: no warm-up.
};

/// A learning rate that grows linearly over the first steps, which stabilizes training with large
/// batches (Goyal et al., 2017, https://arxiv.org/abs/1706.02677). No communication.
class LearningRateWarmup {
 public:
  /// Throws InvalidArgument if `steps` is negative.
  KOLO_EXPORT explicit LearningRateWarmup(const LearningRateWarmupOptions& options);
  /// The learning rate of step `step`, counted from 0.
  [[nodiscard]] KOLO_EXPORT double operator()(std::int64_t step) const;

 private:
  LearningRateWarmupOptions options_;
};

/// Multiplies the learning rate by `factor` from epoch `epoch` on. Factors accumulate.
struct LearningRateMilestone {
  double epoch = 0.0;
  double factor = 1.0;
};

/// Options of LearningRateSchedule. Durations are in epochs of `steps_per_epoch` steps; to count in
/// steps, leave `steps_per_epoch` at 1.
struct LearningRateScheduleOptions {
  double peak = 0.0;         ///< Rate after warm-up: usually one rank's rate times `kolo::size()`.
  double warmup_from = 0.0;  ///< Rate at step 0 if there is a warm-up.
  double warmup = 0.0;       ///< Epochs from `warmup_from` to `peak`; 0: none.
  std::int64_t steps_per_epoch = 1;                 ///< At least 1.
  std::vector<LearningRateMilestone> milestones{};  ///< In ascending order of epochs.
  /// Length, in epochs, of half a cosine from `peak` to `minimum` after warm-up; 0: none. The rate
  /// changes at every step. Cannot be combined with milestones, decay or a multiplier.
  double cosine = 0.0;
  double decay = 1.0;        ///< Factor that is applied every `decay_every` epochs.
  double decay_every = 0.0;  ///< In epochs, counted from step 0; 0: no decay.
  /// A custom factor as a function of the epochs completed. Must be equal on all ranks.
  std::function<double(double epochs)> multiplier{};
  /// True: decay and multiplier change only when an epoch begins. False: they change at every step,
  /// at fractions of epochs. Warm-up changes at every step in either case.
  bool staircase = true;
  double minimum = 0.0;  ///< Lower bound of the rate after warm-up.
};

/// A learning rate that warms up (Goyal et al., 2017, https://arxiv.org/abs/1706.02677) and then
/// follows milestones, regular decay, or both, as is usual for large batches, or half a cosine
/// (Loshchilov and Hutter, 2017, https://arxiv.org/abs/1608.03983), as is usual for language
/// models. The rate depends only on the step, so ranks agree without communication, and a resumed
/// run needs only its step. Thread-safe if `multiplier` is.
///
///     const kolo::LearningRateSchedule schedule({.peak = 0.1 * kolo::size(),
///                                                .warmup_from = 0.1,
///                                                .warmup = 5,
///                                                .steps_per_epoch = steps,
///                                                .milestones = {{30, 0.1}, {60, 0.1}}});
///     kolo::set_learning_rate(optimizer, schedule(step));
///
///     // In steps: 100 of warm-up, then a cosine that ends at step 1000.
///     const kolo::LearningRateSchedule cosine(
///         {.peak = 3e-4, .warmup = 100, .cosine = 900, .minimum = 3e-5});
class LearningRateSchedule {
 public:
  /// Throws InvalidArgument for a rate, factor or length that is negative or not finite, for
  /// milestones out of order, for a `steps_per_epoch` below 1, and for a cosine that is combined
  /// with another decay or ends above `peak`.
  KOLO_EXPORT explicit LearningRateSchedule(LearningRateScheduleOptions options);

  /// The learning rate of step `step`, counted from 0. A negative step counts as 0.
  [[nodiscard]] KOLO_EXPORT double operator()(std::int64_t step) const;

  /// The factor for the momentum in step `step` only: this step's rate divided by the previous one;
  /// 1 in step 0 and after a rate of 0. Use it with optimizers whose velocity includes the rate:
  /// v = m v - rate * g (Goyal et al., section 3, remark 2). LibTorch's optimizers do not need it,
  /// because they apply the rate to the velocity afterwards.
  [[nodiscard]] KOLO_EXPORT double momentum_correction(std::int64_t step) const;

 private:
  [[nodiscard]] double factor_at(double epochs) const;
  [[nodiscard]] double cosine_at(double epochs) const;

  LearningRateScheduleOptions options_;
};

/// Options of ReduceOnPlateau.
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

}  // namespace kolo
