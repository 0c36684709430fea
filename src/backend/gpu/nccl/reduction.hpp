// SPDX-License-Identifier: Apache-2.0
// Divides the arithmetic of a reduction between NCCL and the kernels before and after its call.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/communicator.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/transfer.hpp"

namespace kolo::internal::backend::nccl {

/// False for integers of 16 bits and for Adasum, which NCCL lacks.
[[nodiscard]] bool can_reduce(ReduceOp op, DType dtype);

struct ReductionSplit {
  gpu::Scaling before{};
  RedOp op = RedOp::sum;
  gpu::Scaling after{};
};

/// `wire` is the type in which NCCL reduces. NCCL only adds: with ncclAvg or
/// ncclRedOpCreatePreMulSum it would not use NVLink SHARP.
///
/// Averages are divided after the sum, as on the CPU. A sum of f16 could overflow although the
/// average would not, so f16 is first divided by a power of two, which costs no precision above
/// subnormal numbers.
[[nodiscard]] ReductionSplit split_reduction(const Batch& batch, DType wire);

/// The base class of reductions over NCCL. One call reduces all tensors of one type. One launch
/// packs the tensors of all types into one buffer, and another unpacks them.
class PackedReduction : public GpuExecution {
 public:
  PackedReduction(const LaunchContext& context, Batch given);

 protected:
  /// Tensors of one type.
  using Tensors = std::vector<const BatchTensor*>;

  /// The arguments of the call that reduces the tensors of one type.
  struct PackedTensors {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t elements = 0;
    DType wire = DType::u8;
    ReductionSplit split{};
  };

  /// The bytes that the tensors occupy in the buffer; a multiple of 16.
  [[nodiscard]] virtual std::int64_t room(DType dtype, const Tensors& tensors) const = 0;
  /// Adds the copies before and after the call. `to` is where the tensors lie in the buffer.
  [[nodiscard]] virtual PackedTensors pack(DType dtype, const Tensors& tensors, std::byte* to) = 0;
  virtual void call(const PackedTensors& packed) = 0;

  [[nodiscard]] DType wire_of(DType dtype) const;
  /// The size of that many elements in the buffer, where tensors start at multiples of 16 bytes.
  [[nodiscard]] static std::int64_t aligned_bytes(std::int64_t elements, DType wire);

  gpu::TransferLaunch& before() { return before_; }
  gpu::TransferLaunch& after() { return after_; }

 private:
  bool begin() final;
  void call() final;
  void end() final;
  void abandon() final;

  std::map<DType, Tensors> by_type_{};
  std::vector<PackedTensors> packed_{};
  gpu::TransferLaunch before_;
  gpu::TransferLaunch after_;
};

}  // namespace kolo::internal::backend::nccl
