#include "backend/small_allgather.hpp"

#include <utility>

namespace kolo::internal::backend {

SmallAllgather::SmallAllgather(Backend& cpu, const Batch& batch, std::uint32_t part,
                               std::vector<std::byte> own)
    : own_(std::move(own)) {
  tensor_.input = own_.data();
  tensor_.dtype = DType::u8;
  tensor_.rows = 1;
  tensor_.row_elements = static_cast<std::int64_t>(own_.size());
  tensor_.allocate = [this](std::span<const std::int64_t> rows) -> void* {
    std::int64_t count = 0;
    for (const std::int64_t one : rows) count += one;
    all_.resize(static_cast<std::size_t>(count) * own_.size());
    return all_.data();
  };
  execution_ = cpu.start({.kind = {.type = OperationType::allgather},
                          .tensors = {&tensor_},
                          .set = batch.set,
                          .ranks = batch.ranks,
                          .sequence = batch.sequence,
                          .part = part});
}

Progress SmallAllgather::step() { return execution_->step(); }

std::span<const std::byte> SmallAllgather::of(std::size_t place) const {
  return std::span(all_).subspan(place * own_.size(), own_.size());
}

}  // namespace kolo::internal::backend
