// SPDX-License-Identifier: Apache-2.0
// Shared by the backends: checks, arithmetic, rows and slices of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {

/// The index of `rank` in the batch's `ranks`. Throws InvalidArgument if it is not there.
[[nodiscard]] int index_of(int rank, const Batch& batch);

/// The index of the broadcast's root in the batch's `ranks`; else InvalidArgument.
[[nodiscard]] int root_index(const Batch& batch);

/// The one text of a string broadcast; else InvalidArgument.
[[nodiscard]] std::string& text_of(const Batch& batch);

/// Throws InvalidArgument if the memory is not on the CPU, the reduction has no meaning for a
/// tensor's type, or an allgather or alltoall lacks an allocator or counts.
void check(const Batch& batch);

[[nodiscard]] inline bool is_adasum(const Batch& batch) {
  return batch.kind.type == OperationType::allreduce && batch.kind.op == ReduceOp::adasum;
}

/// Of elements of `wire`, to elements of `result` if given.
[[nodiscard]] reduction::Arithmetic arithmetic_of(const Batch& batch, DType wire,
                                                  std::optional<DType> result = {});

/// Of reductions in two levels: the type in which partial results of elements of `wire` are kept,
/// if elements of `result` are wanted. Half types are not rounded between the levels.
[[nodiscard]] DType combined_type(DType wire, DType result);
[[nodiscard]] inline DType combined_type(DType wire) { return combined_type(wire, wire); }
/// Of the inner level, from elements of `wire` to partial results.
[[nodiscard]] reduction::Arithmetic inner_arithmetic(const Batch& batch, DType wire,
                                                     DType combined);
/// Of the outer level, from partial results to results, both elements of `combined`.
[[nodiscard]] reduction::Arithmetic outer_arithmetic(const Batch& batch, DType combined);

/// The numbers of rows that this rank sends, tensor by tensor: in an alltoall for each of the
/// batch's `ranks`, in an allgather one number for all.
[[nodiscard]] std::vector<std::int64_t> sent_rows(const Batch& batch);

/// Memory for all rows that arrive for a tensor of an allgather or alltoall: `rows` from each of
/// the batch's `ranks`. Null if there are none and the allocator gives none. Throws BackendError.
[[nodiscard]] std::byte* allocate(const Batch& batch, const BatchTensor& tensor,
                                  std::span<const std::int64_t> rows);

/// The part of one rank in elements that are divided among the ranks.
struct Slice {
  std::int64_t begin = 0;  // in elements
  std::int64_t elements = 0;
};

/// The part of `elements` that belongs to the rank with this index. Slices begin at multiples of 16
/// elements where there are enough.
[[nodiscard]] Slice slice_of(std::int64_t elements, int index, int size);

/// A window on all ranks' rows of a reducescatter's tensor: the elements at the same place in each
/// rank's rows.
struct Window {
  const BatchTensor* tensor = nullptr;
  DType wire = DType::u8;         // the type in which the elements travel
  int size = 1;                   // ranks
  std::int64_t offset = 0;        // of the first element in each rank's rows
  std::int64_t max_elements = 0;  // of each rank

  [[nodiscard]] bool converts() const { return wire != tensor->dtype; }
  /// On the wire, for each rank.
  [[nodiscard]] std::int64_t max_bytes() const { return max_elements * signed_size_of(wire); }
  [[nodiscard]] std::int64_t elements_of(int index) const;
  /// In the tensor's input.
  [[nodiscard]] const std::byte* input_of(int index) const;
  /// In the tensor's output.
  [[nodiscard]] std::byte* output() const;
};

/// Divides the tensors of a reducescatter into windows, which are the same on all ranks.
class Windows {
 public:
  /// A window has at most `bytes` on the wire, over all ranks.
  Windows(const Batch& batch, std::int64_t bytes);

  /// False if nothing is left.
  [[nodiscard]] bool next(Window& window);

 private:
  std::span<const BatchTensor* const> tensors_;
  Compression compression_;
  int size_;
  std::int64_t bytes_;
  std::size_t tensor_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace kolo::internal::backend
