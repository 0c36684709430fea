// A few bytes of each rank, for all of them, over what the session has for CPU tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"

namespace kolo::internal::backend {

/// Every rank of the batch makes one, at the same place among its batches, and gives as many bytes.
class SmallAllgather {
 public:
  /// Takes part `part` of the batch's sequence.
  SmallAllgather(Backend& cpu, const Batch& batch, std::uint32_t part, std::vector<std::byte> own);
  SmallAllgather(const SmallAllgather&) = delete;
  SmallAllgather& operator=(const SmallAllgather&) = delete;

  [[nodiscard]] Progress step();
  [[nodiscard]] Awaited waits_for() const { return execution_->waits_for(); }
  /// Of the rank at this place among the batch's `ranks`, once done.
  [[nodiscard]] std::span<const std::byte> of(std::size_t place) const;

 private:
  std::vector<std::byte> own_;
  std::vector<std::byte> all_{};
  BatchTensor tensor_{};
  std::unique_ptr<Execution> execution_;
};

}  // namespace kolo::internal::backend
