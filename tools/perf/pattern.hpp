// Inputs that depend on rank, index and iteration, and what must come out of them.
//
// Elements are small integers, so that every dtype holds every partial result exactly and any order
// of summation gives the same bits. They repeat with a period that is a prime: pieces that were
// exchanged, shifted or left over from an earlier iteration, which has another phase, are seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>
#include <span>
#include <vector>

namespace perf {

/// After how many elements the inputs repeat.
inline constexpr std::int64_t period = 509;

/// A sequence of elements that repeats. Element `i` of a buffer of phase `p` is number `p + i`.
class PeriodicTable {
 public:
  /// `values`: one period.
  PeriodicTable(kolo::DType dtype, std::span<const std::int64_t> values);

  void fill(std::span<std::byte> buffer, std::int64_t phase) const;

  /// How many elements of the buffer are not what `fill` would write.
  [[nodiscard]] std::int64_t count_wrong(std::span<const std::byte> buffer,
                                         std::int64_t phase) const;

 private:
  [[nodiscard]] const std::byte* start(std::int64_t phase) const;

  std::size_t element_size_;
  std::vector<std::byte> bytes_;  // two periods, so that one can be copied from any phase on
};

/// One period of a rank's input to a reduction.
[[nodiscard]] std::vector<std::int64_t> input_values(kolo::DType dtype, kolo::ReduceOp op, int rank,
                                                     int size);

/// One period of what `op` makes of the inputs of all ranks, which are `input_values` for
/// `made_for`.
[[nodiscard]] std::vector<std::int64_t> reduced_values(kolo::DType dtype, kolo::ReduceOp op,
                                                       kolo::ReduceOp made_for, int size);

/// Throws UsageError where a result cannot be exact, or the operator has no meaning.
void check_exactness(kolo::DType dtype, kolo::ReduceOp op, int size);

/// Marks a buffer so that elements which are never written are wrong.
void spoil(std::span<std::byte> buffer);

}  // namespace perf
