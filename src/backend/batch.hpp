// SPDX-License-Identifier: Apache-2.0
// Shared by all backends: validation, arithmetic, rows and slices of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {

/// The index of `rank` in the batch's `ranks`. Throws InvalidArgument if it is not among them.
[[nodiscard]] int index_of(int rank, const Batch& batch);

/// The index of the broadcast's root in the batch's `ranks`. Throws InvalidArgument if it has none.
[[nodiscard]] int root_index(const Batch& batch);

/// The bytes of all tensors' inputs.
[[nodiscard]] std::int64_t total_bytes(const Batch& batch);

/// The text of a string broadcast. Throws InvalidArgument unless there is exactly one.
[[nodiscard]] std::string& text_of(const Batch& batch);

/// Throws InvalidArgument if the memory is not on the CPU, if the reduction is not defined for a
/// tensor's type, or if an allgather or alltoall lacks an allocator or counts.
void check(const Batch& batch);

[[nodiscard]] inline bool is_adasum(const Batch& batch) {
  return batch.kind.type == OperationType::allreduce && batch.kind.op == ReduceOp::adasum;
}

/// The arithmetic of elements of `wire`, with results in `result` if given.
[[nodiscard]] reduction::Arithmetic arithmetic_of(const Batch& batch, DType wire,
                                                  std::optional<DType> result = {});

/// The type of partial results in a reduction with two levels, for elements of `wire` and results
/// of type `result`. Half types are not rounded between the levels.
[[nodiscard]] DType combined_type(DType wire, DType result);
[[nodiscard]] inline DType combined_type(DType wire) { return combined_type(wire, wire); }
/// The arithmetic of the inner level, from elements of `wire` to partial results.
[[nodiscard]] reduction::Arithmetic inner_arithmetic(const Batch& batch, DType wire,
                                                     DType combined);
/// The arithmetic of the outer level, from partial results to results, all of type `combined`.
[[nodiscard]] reduction::Arithmetic outer_arithmetic(const Batch& batch, DType combined);

/// The numbers of rows that this rank sends, tensor by tensor: one for each of the batch's `ranks`
/// in an alltoall, one for all in an allgather.
[[nodiscard]] std::vector<std::int64_t> sent_rows(const Batch& batch);

/// Allocates memory for all rows that arrive for a tensor of an allgather or alltoall: `rows` from
/// each of the batch's `ranks`. May be null if there are no rows. Throws BackendError.
[[nodiscard]] std::byte* allocate(const Batch& batch, const BatchTensor& tensor,
                                  std::span<const std::int64_t> rows);

/// The part of one rank when elements are divided among the ranks.
struct Slice {
  std::int64_t begin = 0;  // in elements
  std::int64_t elements = 0;
};

/// The slice of the rank with this index. Slices start at multiples of 16 elements if there are
/// enough elements.
[[nodiscard]] Slice slice_of(std::int64_t elements, int index, int size);

/// A window on a reducescatter's tensor: the elements at the same place in the rows of each rank.
struct Window {
  const BatchTensor* tensor = nullptr;
  DType wire = DType::u8;         // the type in which the elements travel
  int size = 1;                   // the number of ranks
  std::int64_t offset = 0;        // the first element's place in each rank's rows
  std::int64_t max_elements = 0;  // the maximum for each rank

  [[nodiscard]] bool converts() const { return wire != tensor->dtype; }
  /// The most bytes on the wire that any one rank has in the window.
  [[nodiscard]] std::int64_t max_bytes() const { return max_elements * signed_size_of(wire); }
  [[nodiscard]] std::int64_t elements_of(int index) const;
  /// The start of the rank's elements in the tensor's input.
  [[nodiscard]] const std::byte* input_of(int index) const;
  /// The start of this rank's elements in the tensor's output.
  [[nodiscard]] std::byte* output() const;
};

/// Divides the tensors of a reducescatter into windows, which are the same on all ranks.
class Windows {
 public:
  /// A window has at most `bytes` on the wire, for all ranks together.
  Windows(const Batch& batch, std::int64_t bytes);

  /// Returns false after the last window.
  [[nodiscard]] bool next(Window& window);

 private:
  std::span<const BatchTensor* const> tensors_;
  ReduceOp op_;
  Compression compression_;
  int size_;
  std::int64_t bytes_;
  std::size_t tensor_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace kolo::internal::backend
