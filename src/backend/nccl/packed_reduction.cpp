#include "backend/nccl/packed_reduction.hpp"

#include <utility>

#include "fusion/pack.hpp"

namespace kolo::backend::nccl {

PackedReduction::PackedReduction(const Context& context, Batch given)
    : GpuExecution(context, std::move(given)), before_(gpu()), after_(gpu()) {
  for (const Member* member : batch().members)
    if (member->elements() > 0) by_type_[member->dtype].push_back(member);
}

bool PackedReduction::begin() {
  std::int64_t bytes = 0;
  for (const auto& [dtype, members] : by_type_) bytes += room(dtype, members);
  if (bytes > 0) buffer_ = communicator().take_buffer(static_cast<std::size_t>(bytes));
  std::byte* next = buffer_.data();
  for (const auto& [dtype, members] : by_type_) {
    parts_.push_back(pack(dtype, members, next));
    next += room(dtype, members);
  }
  before_.launch(stream());
  for (const Part& part : parts_) ops_.emplace_back(communicator(), part.plan, part.wire);
  return !parts_.empty();
}

void PackedReduction::call() {
  for (std::size_t i = 0; i < parts_.size(); ++i) call(parts_[i], ops_[i].get());
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

}  // namespace kolo::backend::nccl
