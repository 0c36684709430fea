#include "backend/nccl/reduction.hpp"

#include <utility>

#include "base/dtype.hpp"

namespace kolo::backend::nccl {
namespace {

RedOp op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min: return RedOp::min;
    case ReduceOp::max: return RedOp::max;
    case ReduceOp::product: return RedOp::product;
    default: return RedOp::sum;
  }
}

ReductionPlan plan_real_sum(const Batch& batch, DType wire, bool packed, std::int64_t divisor) {
  const Descriptor& kind = batch.kind;
  const bool all_present = divisor == static_cast<std::int64_t>(batch.ranks.size());
  ReductionPlan plan;
  if (packed && !is_half(wire)) {
    plan.before.scale = kind.prescale;
    plan.after = {divisor, kind.postscale};
    return plan;
  }
  if (divisor != 1 && all_present && kind.prescale == 1.0 && (packed || kind.postscale == 1.0)) {
    plan.op = RedOp::average;
    plan.after.scale = kind.postscale;
    return plan;
  }
  const double factor = kind.prescale / static_cast<double>(divisor);
  if (packed) {
    plan.before.scale = factor;
    plan.after.scale = kind.postscale;
  } else if (factor * kind.postscale != 1.0) {
    plan.factor = factor * kind.postscale;
  }
  return plan;
}

}  // namespace

bool can_reduce(ReduceOp op, DType dtype) {
  return op != ReduceOp::adasum && dtype != DType::u16 && dtype != DType::i16;
}

ReductionPlan plan_reduction(const Batch& batch, DType wire, bool packed) {
  const Descriptor& kind = batch.kind;
  const std::int64_t divisor = kind.op == ReduceOp::average ? batch.divisor : 1;
  const bool sums = kind.op == ReduceOp::sum || kind.op == ReduceOp::average;
  if (sums && is_floating(wire)) return plan_real_sum(batch, wire, packed, divisor);
  ReductionPlan plan;
  plan.op = op_of(kind.op);
  if (wire == DType::boolean) return plan;
  plan.before.scale = kind.prescale;
  plan.after = {divisor, kind.postscale};
  return plan;
}

OwnedOp::OwnedOp(Communicator& communicator, const ReductionPlan& plan, DType wire)
    : communicator_(&communicator),
      op_(plan.factor
              ? communicator.library().make_scaled_sum(communicator.handle(), *plan.factor, wire)
              : plan.op),
      made_(plan.factor.has_value()) {}

OwnedOp::OwnedOp(OwnedOp&& other) noexcept
    : communicator_(other.communicator_),
      op_(other.op_),
      made_(std::exchange(other.made_, false)) {}

OwnedOp::~OwnedOp() {
  if (made_ && !communicator_->aborted())
    communicator_->library().destroy_op(communicator_->handle(), op_);
}

}  // namespace kolo::backend::nccl
