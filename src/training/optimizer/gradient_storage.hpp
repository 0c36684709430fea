// SPDX-License-Identifier: Apache-2.0
// The storage of an optimizer's gradients: the interface between PassReducer and a framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

/// The gradients of an optimizer. A slot is the position of a gradient.
class GradientStorage {
 public:
  virtual ~GradientStorage() = default;

  /// False for a gradient that is not reduced, such as the gradient of a frozen parameter.
  [[nodiscard]] virtual bool takes_part(std::size_t /*slot*/) const { return true; }
  /// Called at the end of a pass, before `content`.
  virtual void prepare_end() {}
  /// The kind of this rank's gradient. 0: none. 1: dense. 1 + k: sparse, with k sparse dimensions.
  [[nodiscard]] virtual int content(std::size_t /*slot*/) const { return 1; }
  /// True if a pass without reduction left a gradient, which the next reduction includes.
  [[nodiscard]] virtual bool is_waiting(std::size_t /*slot*/) const { return false; }
  /// Called before `open` with the largest content of the slot on any rank.
  virtual void expect(std::size_t /*slot*/, int /*content*/) {}
  /// Returns the memory to reduce in place. It holds the gradient that has accumulated since the
  /// last `open` of this pass, times `factor`, or zeros. Until `close`, further gradients may
  /// accumulate in other memory.
  virtual TensorView open(std::size_t slot, double factor) = 0;
  /// Called before `open`. Submits the operation of a gradient that reduces itself, and returns it;
  /// null for any other gradient.
  virtual std::unique_ptr<OwnReduction> open_own(std::size_t /*slot*/, double /*factor*/,
                                                 const std::string& /*name*/,
                                                 std::int64_t /*number*/) {
    return nullptr;
  }
  /// Replaces `open` on a rank outside the process set, where nothing is reduced.
  virtual void scale(std::size_t /*slot*/, double /*factor*/) {}
  /// Called if the memory of the last `open` was not submitted.
  virtual void cancel(std::size_t /*slot*/) {}
  /// Submits the memory of the last `open` of a bucket's slots.
  virtual Future<void> submit(std::span<const std::size_t> /*slots*/,
                              const detail::GroupedAllreduceCall& call) {
    return detail::call_async(call);
  }
  /// Called when the operation of this round of the pass no longer uses the memory that `open`
  /// returned. Some operations end without this call.
  virtual void completed(std::size_t /*slot*/, int /*round*/) {}
  /// Called when all operations of the pass are done. Puts the result in place if `keep`.
  virtual void close(std::size_t /*slot*/, bool /*keep*/) {}
  /// True if each step ends with an operation that has the same name as the pass summary. So the
  /// summary of one rank may be matched with the end of another rank's step, which is a Mismatch.
  /// The summary is then submitted once more, to match that of the other rank's next pass.
  [[nodiscard]] virtual bool ends_steps_together() const { return false; }
  /// Called if backward has thrown while operations write to opened memory. Gives the program other
  /// memory for its gradients, because the program does not know of the operations.
  virtual void detach(std::size_t /*slot*/) {}
};

}  // namespace kolo::internal
