// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/reduction.hpp"

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

ReductionSplit split_real_sum(const Batch& batch, DType wire, bool packed, std::int64_t divisor) {
  const Descriptor& kind = batch.kind;
  const bool all_present = divisor == static_cast<std::int64_t>(batch.ranks.size());
  ReductionSplit split;
  if (packed && !is_half(wire)) {
    split.before.scale = kind.prescale;
    split.after = {divisor, kind.postscale};
    return split;
  }
  if (divisor != 1 && all_present && kind.prescale == 1.0 && (packed || kind.postscale == 1.0)) {
    split.op = RedOp::average;
    split.after.scale = kind.postscale;
    return split;
  }
  const double factor = kind.prescale / static_cast<double>(divisor);
  if (packed) {
    split.before.scale = factor;
    split.after.scale = kind.postscale;
  } else if (factor * kind.postscale != 1.0) {
    split.factor = factor * kind.postscale;
  }
  return split;
}

}  // namespace

bool can_reduce(ReduceOp op, DType dtype) {
  return op != ReduceOp::adasum && dtype != DType::u16 && dtype != DType::i16;
}

ReductionSplit split_reduction(const Batch& batch, DType wire, bool packed) {
  const Descriptor& kind = batch.kind;
  const std::int64_t divisor = kind.op == ReduceOp::average ? batch.divisor : 1;
  const bool sums = kind.op == ReduceOp::sum || kind.op == ReduceOp::average;
  if (sums && is_floating(wire)) return split_real_sum(batch, wire, packed, divisor);
  ReductionSplit split;
  split.op = op_of(kind.op);
  if (wire == DType::boolean) return split;
  split.before.scale = kind.prescale;
  split.after = {divisor, kind.postscale};
  return split;
}

OwnedOp::OwnedOp(Communicator& communicator, const ReductionSplit& split, DType wire)
    : communicator_(communicator),
      op_(split.factor
              ? communicator.library().make_scaled_sum(communicator.handle(), *split.factor, wire)
              : split.op),
      made_(split.factor.has_value()) {}

OwnedOp::~OwnedOp() {
  if (made_ && !communicator_.aborted())
    communicator_.library().destroy_op(communicator_.handle(), op_);
}

PackedReduction::PackedReduction(const LaunchContext& context, Batch given)
    : GpuExecution(context, std::move(given)), before_(gpu()), after_(gpu()) {
  for (const BatchTensor* tensor : batch().tensors)
    if (tensor->elements() > 0) by_type_[tensor->dtype].push_back(tensor);
}

bool PackedReduction::begin() {
  std::int64_t bytes = 0;
  for (const auto& [dtype, tensors] : by_type_) bytes += room(dtype, tensors);
  if (bytes > 0) buffer_ = communicator().take_buffer(static_cast<std::size_t>(bytes));
  std::byte* next = buffer_.data();
  for (const auto& [dtype, tensors] : by_type_) {
    packed_.push_back(pack(dtype, tensors, next));
    next += room(dtype, tensors);
  }
  before_.launch(stream());
  for (const PackedTensors& packed : packed_)
    ops_.emplace_back(communicator(), packed.split, packed.wire);
  return !packed_.empty();
}

void PackedReduction::call() {
  for (std::size_t i = 0; i < packed_.size(); ++i) call(packed_[i], ops_[i].get());
}

void PackedReduction::end() {
  ops_.clear();
  after_.launch(stream());
}

void PackedReduction::abandon() {
  buffer_.abandon();
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
