// SPDX-License-Identifier: Apache-2.0
// An allgather of a few bytes per rank, over the backend for CPU tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "base/elements.hpp"

namespace kolo::internal::backend {

/// Every rank of the batch constructs one, at the same place among its batches and with the same
/// number of bytes.
class SmallAllgather {
 public:
  /// Runs as the batch `part` of the sequence of `batch`.
  SmallAllgather(Backend& cpu, const Batch& batch, std::uint32_t part,
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
  SmallAllgather(const SmallAllgather&) = delete;
  SmallAllgather& operator=(const SmallAllgather&) = delete;

  [[nodiscard]] Progress step() { return execution_->step(); }
  [[nodiscard]] Awaited waits_for() const { return execution_->waits_for(); }
  /// After completion: one of the values from the rank at this place among the batch's `ranks`.
  template <typename T>
  [[nodiscard]] T get(std::size_t place, std::size_t number = 0) const {
    return load<T>(all_.data() + place * own_.size(), static_cast<std::int64_t>(number));
  }

 private:
  std::vector<std::byte> own_;
  std::vector<std::byte> all_{};
  BatchTensor tensor_{};
  std::unique_ptr<Execution> execution_;
};

}  // namespace kolo::internal::backend
