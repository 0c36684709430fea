// Learning rates that follow a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

struct LearningRateWarmupOptions {
  double from = 0.0;       ///< The learning rate at step 0.
  double to = 0.0;         ///< The learning rate from step `steps` on.
  std::int64_t steps = 0;  ///< How many steps the way takes; 0: none.
};

/// A learning rate that grows linearly over the first steps (Goyal et al., 2017,
/// https://arxiv.org/abs/1706.02677): large batches need it. Pure: no communication.
class LearningRateWarmup {
 public:
  /// Throws InvalidArgument for a negative number of steps.
  KOLO_EXPORT explicit LearningRateWarmup(const LearningRateWarmupOptions& options);
  [[nodiscard]] KOLO_EXPORT double operator()(std::int64_t step) const;

 private:
  LearningRateWarmupOptions options_;
};

/// From epoch `epoch` on the learning rate is multiplied by `factor`, and by those before it.
struct LearningRateMilestone {
  double epoch = 0.0;
  double factor = 1.0;
};

/// Epochs are `steps_per_epoch` steps long. Leave that at 1 to count everything in steps.
struct LearningRateScheduleOptions {
  double peak = 0.0;         ///< The rate after warm-up: usually one rank's times `kolo::size()`.
  double warmup_from = 0.0;  ///< The rate at step 0 if there is a warm-up.
  double warmup = 0.0;       ///< Epochs from `warmup_from` to `peak`; 0: none.
  std::int64_t steps_per_epoch = 1;                 ///< At least 1.
  std::vector<LearningRateMilestone> milestones{};  ///< In ascending order of their epochs.
  double decay = 1.0;        ///< Every `decay_every` epochs the rate is multiplied by this.
  double decay_every = 0.0;  ///< In epochs, counted from step 0; 0: no decay.
  /// Any other factor, a function of the epochs that are over. Must give the same on all ranks.
  std::function<double(double epochs)> multiplier{};
  /// True: decay and multiplier are looked at when an epoch begins. False: at every step, at
  /// fractions of epochs. Warm-up goes by steps in either case.
  bool staircase = true;
  double minimum = 0.0;  ///< The rate never falls below this after warm-up.
};

/// Gradual warm-up (Goyal et al., 2017, https://arxiv.org/abs/1706.02677), then milestones, regular
/// decay, or both: what large batches are usually trained with. Pure: a function of the step, so a
/// resumed training needs nothing but its step, and ranks agree. Safe to call from any thread.
///
///     const kolo::LearningRateSchedule schedule({.peak = 0.1 * kolo::size(),
///                                                .warmup_from = 0.1,
///                                                .warmup = 5,
///                                                .steps_per_epoch = steps,
///                                                .milestones = {{30, 0.1}, {60, 0.1}, {80,
///                                                0.1}}});
///     kolo::set_learning_rate(optimizer, schedule(step));
class LearningRateSchedule {
 public:
  /// Throws InvalidArgument for a rate, factor or length that is negative or not finite, milestones
  /// out of order, or no steps in an epoch.
  KOLO_EXPORT explicit LearningRateSchedule(LearningRateScheduleOptions options);

  /// The learning rate of step `step`, counted from 0. A negative step counts as 0.
  [[nodiscard]] KOLO_EXPORT double operator()(std::int64_t step) const;

  /// By what the momentum is to be multiplied in step `step`, in this one only: the new rate over
  /// the one before, or 1. For optimizers whose velocity contains the rate, v = m v - rate * g
  /// (Goyal et al., section 3, remark 2). LibTorch's optimizers do not need it: they multiply by
  /// the rate afterwards.
  [[nodiscard]] KOLO_EXPORT double momentum_correction(std::int64_t step) const;

 private:
  [[nodiscard]] double factor_at(double epochs) const;

  LearningRateScheduleOptions options_;
};

}  // namespace kolo
