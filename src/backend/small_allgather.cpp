// SPDX-License-Identifier: Apache-2.0
#include "backend/small_allgather.hpp"

#include <numeric>

namespace kolo::internal::backend {

SmallAllgather::SmallAllgather(Backend& cpu, const Batch& batch, std::uint32_t part,
                               std::span<const std::byte> own)
    : own_(own.begin(), own.end()) {
  tensor_.input = own_.data();
  tensor_.dtype = DType::u8;
  tensor_.rows = 1;
  tensor_.row_elements = static_cast<std::int64_t>(own_.size());
  tensor_.allocate = [this](std::span<const std::int64_t> rows) -> void* {
    const std::int64_t count = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
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

}  // namespace kolo::internal::backend
