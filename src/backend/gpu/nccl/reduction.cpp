// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/reduction.hpp"

#include <bit>
#include <utility>

#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::nccl {
namespace {

RedOp op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min: return RedOp::min;
    case ReduceOp::max: return RedOp::max;
    case ReduceOp::product: return RedOp::product;
    default: return RedOp::sum;
  }
}

}  // namespace

bool can_reduce(ReduceOp op, DType dtype) {
  return op != ReduceOp::adasum && dtype != DType::u16 && dtype != DType::i16;
}

ReductionSplit split_reduction(const Batch& batch, DType wire) {
  const Descriptor& kind = batch.kind;
  const std::int64_t divisor = kind.op == ReduceOp::average ? batch.divisor : 1;
  ReductionSplit split;
  split.op = op_of(kind.op);
  if (wire == DType::boolean) return split;
  split.before.scale = kind.prescale;
  split.after = {divisor, kind.postscale};
  // Dividing by a power of two first keeps the sum of f16 in range without losing precision.
  if (wire == DType::f16 && divisor > 1) {
    const auto summands = std::bit_ceil(static_cast<std::uint64_t>(divisor));
    split.before.scale /= static_cast<double>(summands);
    split.after.scale *= static_cast<double>(summands);
    if (std::has_single_bit(static_cast<std::uint64_t>(divisor))) split.after = {1, kind.postscale};
  }
  return split;
}

PackedReduction::PackedReduction(const LaunchContext& context, Batch given)
    : GpuExecution(context, std::move(given)), before_(gpu()), after_(gpu()) {
  for (const BatchTensor* tensor : batch().tensors)
    if (tensor->elements() > 0) by_type_[tensor->dtype].push_back(tensor);
}

bool PackedReduction::begin() {
  std::int64_t bytes = 0;
  for (const auto& [dtype, tensors] : by_type_) bytes += room(dtype, tensors);
  std::byte* next = bytes > 0 ? communicator().buffer(static_cast<std::size_t>(bytes)) : nullptr;
  for (const auto& [dtype, tensors] : by_type_) {
    packed_.push_back(pack(dtype, tensors, next));
    next += room(dtype, tensors);
  }
  before_.launch(stream());
  return !packed_.empty();
}

void PackedReduction::call() {
  for (const PackedTensors& packed : packed_) call(packed);
}

void PackedReduction::end() { after_.launch(stream()); }

void PackedReduction::abandon() {
  before_.abandon();
  after_.abandon();
}

DType PackedReduction::wire_of(DType dtype) const {
  return fusion::wire_type(dtype, batch().kind.compression);
}

std::int64_t PackedReduction::aligned_bytes(std::int64_t elements, DType wire) {
  constexpr std::int64_t alignment = 16;
  return (elements * signed_size_of(wire) + alignment - 1) / alignment * alignment;
}

}  // namespace kolo::internal::backend::nccl
