#include "backend/cuda/exchange.hpp"

#include <utility>

namespace kolo::backend::cuda {

Exchange::Exchange(Backend& cpu, const Batch& batch, std::uint32_t part, std::vector<std::byte> own)
    : own_(std::move(own)) {
  member_.input = own_.data();
  member_.dtype = DType::u8;
  member_.rows = 1;
  member_.row_elements = static_cast<std::int64_t>(own_.size());
  member_.allocate = [this](std::span<const std::int64_t> rows) -> void* {
    std::int64_t count = 0;
    for (const std::int64_t one : rows) count += one;
    all_.resize(static_cast<std::size_t>(count) * own_.size());
    return all_.data();
  };
  execution_ = cpu.start({.kind = {.type = OperationType::allgather},
                          .members = {&member_},
                          .set = batch.set,
                          .ranks = batch.ranks,
                          .sequence = batch.sequence,
                          .part = part});
}

Progress Exchange::step() { return execution_->step(); }

std::span<const std::byte> Exchange::of(std::size_t place) const {
  return std::span(all_).subspan(place * own_.size(), own_.size());
}

}  // namespace kolo::backend::cuda
