// SPDX-License-Identifier: Apache-2.0
// The number of an optimizer's step, which is part of its operations.
#pragma once

#include <cstdint>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {

/// Counts the steps of an optimizer. The number is part of each operation, so that operations of
/// ranks at different steps do not match. Steps are counted from the last completed join of the
/// session: ranks with unequal data make different numbers of steps before they join, and earlier
/// sessions may have had other ranks. Not thread-safe.
class StepNumber {
 public:
  /// Returns the number for an operation of the current step. Call `begin` only once the operation
  /// is submitted, because the session may refuse it. Throws InvalidArgument if ranks joined after
  /// an operation of this step: the other ranks have reduced the step without the rest of this
  /// rank's gradients, and no longer wait for them.
  [[nodiscard]] std::int64_t of_operation() {
    if (is_cut_by_join()) refuse_cut();
    catch_up();
    return number_;
  }

  [[noreturn]] static void refuse_cut() {
    throw InvalidArgument(
        "join() was called in the middle of a step, or the session ended, "
        "after the reduction of some of its gradients had begun. The step is dropped on this rank. "
        "Call join() after step()");
  }

  /// Notes that an operation of the current step was submitted.
  void begin() { begun_ = true; }

  /// True if ranks joined, or a session began, after an operation of this step. All operations of
  /// the step are done then.
  [[nodiscard]] bool is_cut_by_join() const { return begun_ && is_before_join(); }

  /// True if ranks joined, or a session began, since the last step ended, and nothing was submitted
  /// since then: backward passes from before the join belong to no step of the other ranks.
  [[nodiscard]] bool is_behind_join() const { return !begun_ && is_before_join(); }

  /// True if ranks joined, or a session began, since the last call of this object.
  [[nodiscard]] bool is_before_join() const { return step_epoch_ != detail::step_epoch(); }

  /// Starts over with step 0 after a join. Call it only if the current step has no operation yet.
  void catch_up() {
    if (!is_before_join()) return;
    number_ = 0;
    passes_ = 0;
    step_epoch_ = detail::step_epoch();
  }

  /// Ends the step. The next step begins with its first operation.
  void advance() {
    ++number_;
    catch_up();
    begun_ = false;
  }

  /// Ends a pass that reduced, which is a step of its own for this class.
  void advance_pass() {
    detail::note_passes(++passes_);
    advance();
  }
  /// The number of passes that reduced since the last join or the start of the session. It is the
  /// same on all ranks.
  [[nodiscard]] std::int64_t passes() const { return is_before_join() ? 0 : passes_; }

 private:
  std::int64_t number_ = 0;
  std::int64_t passes_ = 0;
  std::int64_t step_epoch_ = detail::step_epoch();
  bool begun_ = false;
};

}  // namespace kolo::internal
