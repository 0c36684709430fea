// SPDX-License-Identifier: Apache-2.0
// Where the gradients of an optimizer are: the interface between PassReducer and a framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kolo/collectives.hpp"

namespace kolo::internal {

/// The operation of a gradient that does not travel as dense memory.
class OwnReduction {
 public:
  virtual ~OwnReduction() = default;
  /// Waits for the operation. Throws its error.
  virtual void wait() = 0;
};

/// The gradients of an optimizer, known by their position, the slot.
class GradientStorage {
 public:
  virtual ~GradientStorage() = default;

  /// False for a gradient that is not reduced, such as that of a frozen parameter.
  [[nodiscard]] virtual bool takes_part(std::size_t /*slot*/) const { return true; }
  /// Called when a pass ends, before `content`.
  virtual void prepare_end() {}
  /// 0: this rank has no gradient. 1: a dense one. 1 + k: a sparse one with k sparse dimensions.
  [[nodiscard]] virtual int content(std::size_t /*slot*/) const { return 1; }
  /// True if a pass without reduction left a gradient, which the next reduction includes.
  [[nodiscard]] virtual bool is_waiting(std::size_t /*slot*/) const { return false; }
  /// Called before `open`: the largest content of the slot on any rank.
  virtual void expect(std::size_t /*slot*/, int /*content*/) {}
  /// Returns the memory to reduce in place: what has accumulated since the last `open` of this
  /// pass, times `factor`, or zeros. Gradients may accumulate elsewhere until `close`.
  virtual TensorView open(std::size_t slot, double factor) = 0;
  /// Called before `open`: the operation of a gradient that reduces itself, or null.
  virtual std::unique_ptr<OwnReduction> open_own(std::size_t /*slot*/, double /*factor*/,
                                                 const std::string& /*name*/,
                                                 std::int64_t /*number*/) {
    return nullptr;
  }
  /// Replaces `open` on a rank outside the process set, where nothing is reduced.
  virtual void scale(std::size_t /*slot*/, double /*factor*/) {}
  /// The memory of the last `open` was not submitted.
  virtual void cancel(std::size_t /*slot*/) {}
  virtual Future<void> submit(std::size_t /*slot*/, const detail::GroupedAllreduceCall& call) {
    return detail::call_async(call);
  }
  /// The operation of this round of the pass no longer uses the memory of its `open`. Not called
  /// for every operation.
  virtual void completed(std::size_t /*slot*/, int /*round*/) {}
  /// All operations of the pass are done. Puts the result in place if `keep`.
  virtual void close(std::size_t /*slot*/, bool /*keep*/) {}
  /// True if each step ends with an operation that has the name of the passes' summary. Then a
  /// pass whose summary meets the end of another rank's step submits it again, for the next pass
  /// of the other ranks.
  [[nodiscard]] virtual bool ends_steps_together() const { return false; }
  /// Backward has thrown while operations write to opened memory. Replaces that memory in what the
  /// program sees, because the program does not know of the operations.
  virtual void detach(std::size_t /*slot*/) {}
};

}  // namespace kolo::internal
