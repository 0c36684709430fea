// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "backend/gpu/nccl/reduction.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Packs tensors of a type into the buffer one after the other. A tensor that is the only one of
/// its type is reduced in place unless it is compressed.
class Allreduce : public PackedReduction {
 public:
  using PackedReduction::PackedReduction;

 private:
  [[nodiscard]] bool stays(DType dtype, const Tensors& tensors) const {
    return tensors.size() == 1 && wire_of(dtype) == dtype;
  }

  [[nodiscard]] std::int64_t room(DType dtype, const Tensors& tensors) const override {
    if (stays(dtype, tensors)) return 0;
    std::int64_t bytes = 0;
    for (const BatchTensor* tensor : tensors)
      bytes += aligned_bytes(tensor->elements(), wire_of(dtype));
    return bytes;
  }

  [[nodiscard]] PackedTensors pack(DType dtype, const Tensors& tensors, std::byte* to) override {
    if (stays(dtype, tensors)) return leave_in_place(*tensors.front());
    const DType wire = wire_of(dtype);
    PackedTensors packed{to, to, room(dtype, tensors) / signed_size_of(wire), wire,
                         split_reduction(batch(), wire)};
    for (const BatchTensor* tensor : tensors) {
      before().add({static_cast<const std::byte*>(tensor->input), to, tensor->elements(),
                    packed.split.before, dtype, wire});
      after().add({to, static_cast<std::byte*>(tensor->output), tensor->elements(),
                   packed.split.after, wire, dtype});
      to += aligned_bytes(tensor->elements(), wire);
    }
    return packed;
  }

  [[nodiscard]] PackedTensors leave_in_place(const BatchTensor& tensor) {
    PackedTensors packed{tensor.input, tensor.output, tensor.elements(), tensor.dtype,
                         split_reduction(batch(), tensor.dtype)};
    auto* const output = static_cast<std::byte*>(tensor.output);
    const auto scale = [&](gpu::TransferLaunch& launch, const void* from,
                           const gpu::Scaling& scaling) {
      launch.add({static_cast<const std::byte*>(from), output, packed.elements, scaling,
                  tensor.dtype, tensor.dtype});
    };
    // A scaled input is written to the output, from which NCCL then reduces. Booleans also pass
    // through the kernel, which makes every true byte a 1.
    if (!packed.split.before.none() || tensor.dtype == DType::boolean) {
      scale(before(), tensor.input, packed.split.before);
      packed.from = output;
    }
    if (!packed.split.after.none()) scale(after(), output, packed.split.after);
    return packed;
  }

  void call(const PackedTensors& packed) override {
    library().all_reduce(packed.from, packed.to, packed.elements, packed.wire, packed.split.op,
                         comm(), stream());
  }
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(const LaunchContext& context, Batch batch) {
  return std::make_unique<Allreduce>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
