// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "backend/gpu/nccl/reduction.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// NCCL requires equal counts for all ranks. So the tensors of one type lie in the buffer rank by
/// rank, each with room for the rows of the first rank, which gets the most.
class Reducescatter : public PackedReduction {
 public:
  using PackedReduction::PackedReduction;

 private:
  [[nodiscard]] std::int64_t elements_of(const BatchTensor& tensor, int rank) const {
    return reducescatter_rows(tensor.rows, rank, size()) * tensor.row_elements;
  }

  /// The bytes for each rank on the wire.
  [[nodiscard]] std::int64_t share(DType dtype, const Tensors& tensors) const {
    std::int64_t bytes = 0;
    for (const BatchTensor* tensor : tensors)
      bytes += aligned_bytes(elements_of(*tensor, 0), wire_of(dtype));
    return bytes;
  }

  /// The shares of all ranks, followed by room for this rank's result.
  [[nodiscard]] std::int64_t room(DType dtype, const Tensors& tensors) const override {
    return share(dtype, tensors) * (size() + 1);
  }

  [[nodiscard]] PackedTensors pack(DType dtype, const Tensors& tensors, std::byte* to) override {
    const DType wire = wire_of(dtype);
    const std::int64_t each = share(dtype, tensors);
    std::byte* const result = to + each * size();
    const ReductionSplit split = split_reduction(batch(), wire);
    std::int64_t offset = 0;
    for (const BatchTensor* tensor : tensors) {
      const auto* from = static_cast<const std::byte*>(tensor->input);
      for (int rank = 0; rank < size(); ++rank) {
        const std::int64_t elements = elements_of(*tensor, rank);
        before().add({from, to + each * rank + offset, elements, split.before, dtype, wire});
        from += elements * signed_size_of(dtype);
      }
      after().add({result + offset, static_cast<std::byte*>(tensor->output),
                   elements_of(*tensor, index()), split.after, wire, dtype});
      offset += aligned_bytes(elements_of(*tensor, 0), wire);
    }
    return {to, result, each / signed_size_of(wire), wire, split};
  }

  void call(const PackedTensors& packed) override {
    library().reduce_scatter(packed.from, packed.to, packed.elements, packed.wire, packed.split.op,
                             comm(), stream());
  }
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(const LaunchContext& context, Batch batch) {
  return std::make_unique<Reducescatter>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
