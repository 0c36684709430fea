// SPDX-License-Identifier: Apache-2.0
// The exact sum of floating-point tensors: integers, whose order of addition does not matter.
#pragma once

#include <cstdint>
#include <vector>

#include "kolo/tensor.hpp"

namespace kolo::internal {

/// Most tensors that an ExactSum can add without overflow.
constexpr int max_exact_summands = 1024;

/// A sum of tensors of the same number of elements. Ranks add their sums as vectors of integers.
class ExactSum {
 public:
  explicit ExactSum(std::int64_t elements);

  void clear();
  /// Adds a tensor in host memory, of a floating-point type.
  void add(const ConstTensorView& tensor);
  /// The integers that the ranks add, as one vector. Call it before the results are read.
  [[nodiscard]] TensorView words();
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  /// True if a tensor was added.
  [[nodiscard]] bool is_used() const { return words_[used()] != 0; }
  /// Writes the sum divided by `count`.
  void write_mean(const TensorView& tensor, int count) const;

 private:
  [[nodiscard]] std::size_t used() const { return 2 * static_cast<std::size_t>(elements_); }
  [[nodiscard]] std::size_t invalid() const { return used() + 1; }

  std::int64_t elements_;
  bool is_clear_ = true;  // the first tensor replaces the elements' integers
  /// The multiples of `high_unit`, then the rest in multiples of `low_unit`; the number of tensors,
  /// and the number of those that cannot be added.
  std::vector<std::int64_t> words_;
};

}  // namespace kolo::internal
