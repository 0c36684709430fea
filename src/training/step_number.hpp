// SPDX-License-Identifier: Apache-2.0
// The number of an optimizer's step, which is part of its operations.
#pragma once

#include <cstdint>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {

/// Detects ranks that are at different steps: their operations do not match. Ranks with unequal
/// data make different numbers of steps before they join, so steps are counted from the last
/// completed join. Not thread-safe.
class StepNumber {
 public:
  /// The number for an operation of the current step; `begin` follows once the operation is
  /// submitted, because the session may refuse it. Throws InvalidArgument if ranks joined after
  /// an operation of this step: the others reduced the step without this rank's other gradients,
  /// and no longer wait for them.
  [[nodiscard]] std::int64_t of_operation() {
    if (is_cut_by_join()) {
      throw InvalidArgument(
          "DistributedOptimizer: join() was called in the middle of a step, after the reduction of "
          "some of its gradients had begun. Call join() after step(), or end this step with "
          "skip_step()");
    }
    count_joins();
    return number_;
  }

  /// An operation of the current step was submitted.
  void begin() { begun_ = true; }

  /// True if ranks joined after an operation of this step. Its operations are all done then.
  [[nodiscard]] bool is_cut_by_join() const {
    return begun_ && joins_ != detail::completed_joins();
  }

  /// True if ranks joined since the last step ended, and nothing was submitted since then: backward
  /// passes from before the join belong to no step of the other ranks.
  [[nodiscard]] bool is_behind_join() const {
    return !begun_ && joins_ != detail::completed_joins();
  }

  /// Begins with step 0 after the join. To be called if nothing was submitted.
  void restart() { count_joins(); }

  /// Ends the step. The next begins with its first operation.
  void advance() {
    ++number_;
    count_joins();
    begun_ = false;
  }

 private:
  void count_joins() {
    const std::int64_t joins = detail::completed_joins();
    if (joins != joins_) number_ = 0;
    joins_ = joins;
  }

  std::int64_t number_ = 0;
  std::int64_t joins_ = detail::completed_joins();
  bool begun_ = false;
};

}  // namespace kolo::internal
