// What reductions over NCCL have in common.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "backend/cuda/transfers.hpp"
#include "backend/nccl/execution.hpp"
#include "backend/nccl/reduction.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::nccl {

/// The members of one type are one call. They lie in a buffer of all types, are packed into it by
/// one launch, and unpacked by one.
class PackedReduction : public GpuExecution {
 public:
  PackedReduction(const Context& context, Batch given);

 protected:
  /// Of one type.
  using Members = std::vector<const Member*>;

  /// One call.
  struct Part {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t elements = 0;
    DType wire = DType::u8;
    ReductionPlan plan{};
  };

  /// Bytes that the members take in the buffer; a multiple of 16.
  [[nodiscard]] virtual std::int64_t room(DType dtype, const Members& members) const = 0;
  /// Says what is copied before the call and after it; `to` is their place in the buffer.
  [[nodiscard]] virtual Part pack(DType dtype, const Members& members, std::byte* to) = 0;
  virtual void call(const Part& part, RedOp op) = 0;

  [[nodiscard]] DType wire_of(DType dtype) const;
  /// Of so many elements in the buffer, where tensors begin at multiples of 16 bytes.
  [[nodiscard]] static std::int64_t aligned_bytes(std::int64_t elements, DType wire);

  cuda::Transfers& before() { return before_; }
  cuda::Transfers& after() { return after_; }

 private:
  bool begin() final;
  void call() final;
  void end() final;
  void abandon() final;

  std::map<DType, Members> by_type_{};
  std::vector<Part> parts_{};
  std::deque<OwnedOp> ops_{};
  Communicator::Buffer buffer_{};
  cuda::Transfers before_;
  cuda::Transfers after_;
};

}  // namespace kolo::backend::nccl
