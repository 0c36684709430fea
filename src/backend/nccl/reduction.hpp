// Which part of a reduction's arithmetic NCCL does, and which the kernel before and after it.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/backend.hpp"
#include "backend/cuda/transfer.hpp"
#include "backend/nccl/communicator.hpp"

namespace kolo::backend::nccl {

/// NCCL has no integers of 16 bits, and no Adasum.
[[nodiscard]] bool can_reduce(ReduceOp op, DType dtype);

struct ReductionPlan {
  cuda::Scaling before{};
  std::optional<double> factor{};  // NCCL multiplies by it before it adds
  RedOp op = RedOp::sum;           // unless there is a factor
  cuda::Scaling after{};
};

/// `wire` is the type in which NCCL reduces; `packed` says that the kernel runs before and after
/// anyway, so that scaling there costs nothing.
///
/// Reals are averaged by NCCL where the sum could overflow (half types) or the kernel would run for
/// nothing else; else they are divided after the sum. Integers are scaled and divided as on the
/// CPU.
[[nodiscard]] ReductionPlan plan_reduction(const Batch& batch, DType wire, bool packed);

/// An operation of NCCL's, for as long as it is needed.
class OwnedOp {
 public:
  OwnedOp(Communicator& communicator, const ReductionPlan& plan, DType wire);
  ~OwnedOp();
  OwnedOp(OwnedOp&& other) noexcept;
  OwnedOp& operator=(OwnedOp&&) = delete;
  OwnedOp(const OwnedOp&) = delete;
  OwnedOp& operator=(const OwnedOp&) = delete;

  [[nodiscard]] RedOp get() const { return op_; }

 private:
  Communicator* communicator_;
  RedOp op_;
  bool made_;
};

}  // namespace kolo::backend::nccl
