// SPDX-License-Identifier: Apache-2.0
// The memory of a unit of a fully sharded model, which a framework provides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kolo/tensor.hpp"

namespace kolo::internal {

/// The gradients of a unit's trained parameters in one pass, on the way to their shards.
class UnitGradients {
 public:
  virtual ~UnitGradients() = default;
  /// The whole gradients, each with one dimension; zeros where this rank has none.
  [[nodiscard]] virtual std::vector<ConstTensorView> whole() const = 0;
  /// Receive this rank's shards of the reduced gradients, in the same order.
  [[nodiscard]] virtual std::vector<TensorView> shards() const = 0;
  /// True if the shards are the whole gradients, in a set of one rank: there is nothing to reduce.
  [[nodiscard]] virtual bool is_undivided() const = 0;
  /// Adds the reduced shards to the gradients of this rank's shards. Called once the reduction is
  /// done.
  virtual void accumulate() = 0;
};

/// The parameters of one unit. Each is divided among the ranks; their whole elements have memory
/// only between `allocate` and `free`.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;

  /// Makes the whole parameters usable. Their elements are not there yet.
  virtual void allocate() = 0;
  /// Frees the memory of the whole parameters.
  virtual void free() noexcept = 0;
  /// True if the shards are the whole parameters, at their places, so that nothing is gathered.
  [[nodiscard]] virtual bool is_undivided() const = 0;

  /// This rank's shards, each with one dimension, in the dtype of the whole parameters. Valid until
  /// `gathered`.
  [[nodiscard]] virtual std::vector<ConstTensorView> shards() = 0;
  /// The places of the whole parameters, in the same order.
  [[nodiscard]] virtual std::vector<void*> places() = 0;
  /// The number of elements of each whole parameter.
  [[nodiscard]] virtual std::vector<std::int64_t> elements() const = 0;
  /// The whole parameters are there.
  virtual void gathered() noexcept = 0;
  /// Counts changes of shards. It changes on all ranks or on none.
  [[nodiscard]] virtual std::int64_t version() const = 0;
  /// Differs from its earlier values if the program has changed this rank's shards in between, even
  /// in a way that `version` does not count.
  [[nodiscard]] virtual std::size_t stamp() const = 0;

  /// Takes the gradients that this rank has for the unit and has not reduced yet: those that
  /// passes without reduction have left, or zeros.
  [[nodiscard]] virtual std::unique_ptr<UnitGradients> take_gradients() = 0;
  /// The trained parameters for which this rank has made a gradient since the last call, by
  /// position: 1 or 0.
  virtual std::vector<std::int32_t> take_used() = 0;
  /// The pass has ended. `used` says which of the trained parameters any rank has used; the others
  /// keep the gradients that they had before it, or none.
  virtual void end_pass(const std::vector<std::int32_t>& used) = 0;
  /// The pass has failed. Drops gradients that are not reduced, and those that the shards did not
  /// have before the pass.
  virtual void fail_pass() noexcept = 0;
};

}  // namespace kolo::internal
