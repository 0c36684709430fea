// SPDX-License-Identifier: Apache-2.0
// One reduction of ReproducibleGradients: the sums of named gradients over the shards of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/training/reproducible.hpp"
#include "training/reproducible/exact_sum.hpp"

namespace kolo::internal {

class ExactReduction {
 public:
  /// Throws InvalidArgument for a number of shards that is out of bounds.
  KOLO_EXPORT explicit ExactReduction(const ReproducibleOptions& options);

  [[nodiscard]] KOLO_EXPORT std::vector<int> own_shards() const;

  /// Declares a gradient. Its sum is kept from step to step. Throws InvalidArgument for an empty or
  /// repeated name.
  KOLO_EXPORT void expect(const std::string& name, std::int64_t elements);
  /// Adds this rank's gradient of a shard, by its place in the order of `expect`.
  KOLO_EXPORT void add(std::size_t i, const ConstTensorView& gradient);
  /// Collective. Calls `compute`, which adds, for each of this rank's shards, and adds the ranks'
  /// sums. If `compute` throws, throws that exception here, whatever other ranks do, and
  /// BackwardFailed on the other ranks.
  KOLO_EXPORT void run(const std::function<void(int shard)>& compute);
  /// True if a shard of any rank has this gradient.
  [[nodiscard]] bool is_used(std::size_t i) const { return sums_[i].sum.is_used(); }
  KOLO_EXPORT void write_mean(std::size_t i, const TensorView& tensor) const;

 private:
  struct Named {
    std::string name;
    ExactSum sum;
  };

  void reduce(bool failed);

  ReproducibleOptions options_;
  std::vector<Named> sums_{};
};

}  // namespace kolo::internal
