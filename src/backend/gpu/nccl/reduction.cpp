// SPDX-License-Identifier: Apache-2.0
// Allreduces and reducescatters over NCCL.
#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "backend/gpu/nccl/execution.hpp"
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

struct ReductionSplit {
  gpu::Scaling before{};
  RedOp op = RedOp::sum;
  gpu::Scaling after{};
};

/// `wire` is the type in which NCCL reduces. NCCL only adds: with ncclAvg or
/// ncclRedOpCreatePreMulSum it would not use NVLink SHARP.
///
/// Averages are divided after the sum, as on the CPU. Elements of a type whose sums may overflow
/// (f16) are first divided by a power of two; only subnormal numbers lose precision.
ReductionSplit split_reduction(const Batch& batch, DType wire) {
  const Descriptor& kind = batch.kind;
  const std::int64_t divisor = kind.op == ReduceOp::average ? batch.divisor : 1;
  ReductionSplit split;
  split.op = op_of(kind.op);
  if (wire == DType::boolean) return split;
  split.before.scale = kind.prescale;
  split.after = {divisor, kind.postscale};
  if (traits_of(wire).sums_overflow && divisor > 1) {
    const auto summands = std::bit_ceil(static_cast<std::uint64_t>(divisor));
    split.before.scale /= static_cast<double>(summands);
    split.after.scale *= static_cast<double>(summands);
    if (std::has_single_bit(static_cast<std::uint64_t>(divisor))) split.after = {1, kind.postscale};
  }
  return split;
}

/// The base class of reductions over NCCL. One call reduces all tensors of one type. Few
/// launches pack the tensors of all types into one buffer, and as many unpack them.
class PackedReduction : public Collective {
 public:
  PackedReduction(const LaunchContext& context, Batch given)
      : Collective(context, std::move(given)) {
    for (const BatchTensor* tensor : batch().tensors)
      if (tensor->elements() > 0) by_type_[tensor->dtype].push_back(tensor);
  }

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

  [[nodiscard]] DType wire_of(DType dtype) const {
    return fusion::wire_type(dtype, batch().kind.op, batch().kind.compression);
  }
  /// The size of that many elements in the buffer, where tensors start at multiples of 16 bytes.
  [[nodiscard]] static std::int64_t aligned_bytes(std::int64_t elements, DType wire) {
    constexpr std::int64_t alignment = 16;
    return (elements * signed_size_of(wire) + alignment - 1) / alignment * alignment;
  }

  gpu::TransferLaunch& before() { return before_; }
  gpu::TransferLaunch& after() { return after_; }

 private:
  bool begin() final {
    std::int64_t bytes = 0;
    for (const auto& [dtype, tensors] : by_type_) bytes += room(dtype, tensors);
    const std::size_t wanted = std::max(static_cast<std::size_t>(bytes), reserve());
    std::byte* next = wanted > 0 ? communicator().buffer(wanted) : nullptr;
    for (const auto& [dtype, tensors] : by_type_) {
      packed_.push_back(pack(dtype, tensors, next));
      next += room(dtype, tensors);
    }
    before_.launch(gpu(), stream());
    return !packed_.empty();
  }

  void call() final {
    for (const PackedTensors& packed : packed_) call(packed);
  }

  void end() final { after_.launch(gpu(), stream()); }

  std::map<DType, Tensors> by_type_{};
  std::vector<PackedTensors> packed_{};
  gpu::TransferLaunch before_{};
  gpu::TransferLaunch after_{};
};

/// Packs tensors of a type into the buffer one after the other. A tensor that is the only one of
/// its type is not packed, unless it travels in another type (`wire_type`).
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

std::shared_ptr<Collective> make_allreduce(const LaunchContext& context, Batch batch) {
  return std::make_shared<Allreduce>(context, std::move(batch));
}

std::shared_ptr<Collective> make_reducescatter(const LaunchContext& context, Batch batch) {
  return std::make_shared<Reducescatter>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
