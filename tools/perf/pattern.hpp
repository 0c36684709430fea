// SPDX-License-Identifier: Apache-2.0
// Inputs that depend on rank, index and iteration, and their expected results.
//
// Elements are small integers, so that every dtype holds every partial result exactly and any order
// of summation gives the same bits. They repeat with a prime period, and each iteration starts at
// another phase: pieces that are swapped, shifted or left over from an earlier iteration are wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>
#include <span>
#include <vector>

namespace perf {

/// The inputs repeat after this many elements.
inline constexpr std::int64_t period = 509;

/// A periodic sequence. Element `i` of a buffer with phase `p` is number `p + i` of the sequence.
class PeriodicTable {
 public:
  /// `values` is one period.
  PeriodicTable(kolo::DType dtype, std::span<const std::int64_t> values);

  void fill(std::span<std::byte> buffer, std::int64_t phase) const;

  /// Counts the elements that differ from what `fill` writes.
  [[nodiscard]] std::int64_t count_wrong(std::span<const std::byte> buffer,
                                         std::int64_t phase) const;

 private:
  [[nodiscard]] const std::byte* start(std::int64_t phase) const;

  std::size_t element_size_;
  std::vector<std::byte> bytes_;  // two periods, so that one period can be copied from any phase
};

/// One period of a rank's input to a reduction.
[[nodiscard]] std::vector<std::int64_t> input_values(kolo::DType dtype, kolo::ReduceOp op, int rank,
                                                     int size);

/// One period of the result of `op` over all ranks' inputs, which are `input_values` for
/// `made_for`.
[[nodiscard]] std::vector<std::int64_t> reduced_values(kolo::DType dtype, kolo::ReduceOp op,
                                                       kolo::ReduceOp made_for, int size);

/// Throws UsageError if a result cannot be exact, or the dtype has no such operator.
void check_exactness(kolo::DType dtype, kolo::ReduceOp op, int size);

/// Fills a buffer with a mark, so that elements that are never written count as wrong.
void spoil(std::span<std::byte> buffer);

}  // namespace perf
