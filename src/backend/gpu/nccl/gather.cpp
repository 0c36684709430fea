// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Allgather and alltoall. The ranks have different numbers of rows, so they exchange these first,
/// over the CPU's backend.
class Gather : public GpuExecution {
 public:
  Gather(const LaunchContext& context, Batch given) : GpuExecution(context, std::move(given)) {
    const std::vector<std::int64_t> rows = sent_rows(batch());
    exchange_numbers(std::as_bytes(std::span(rows)));
  }

 private:
  /// Of one tensor.
  struct Arrival {
    std::byte* to = nullptr;
    std::vector<std::int64_t> rows{};  // from each rank
  };

  [[nodiscard]] bool is_alltoall() const { return batch().kind.type == OperationType::alltoall; }

  bool begin() override {
    const CudaStreamScope scope(stream());
    const auto targets = static_cast<std::size_t>(is_alltoall() ? size() : 1);
    const auto own = static_cast<std::size_t>(is_alltoall() ? index() : 0);
    const auto any = [](const std::vector<std::int64_t>& rows) {
      return std::ranges::any_of(rows, [](std::int64_t count) { return count > 0; });
    };
    bool moves = false;
    for (std::size_t m = 0; m < batch().tensors.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      Arrival& arrival = arrivals_.emplace_back();
      for (std::size_t rank = 0; rank < batch().ranks.size(); ++rank)
        arrival.rows.push_back(gathered().get<std::int64_t>(rank, m * targets + own));
      arrival.to = allocate(batch(), tensor, arrival.rows);
      moves |= tensor.row_bytes() > 0 && (any(arrival.rows) || any(tensor.counts));
    }
    return moves;
  }

  void call() override {
    for (std::size_t m = 0; m < arrivals_.size(); ++m)
      is_alltoall() ? exchange(*batch().tensors[m], arrivals_[m])
                    : gather(*batch().tensors[m], arrivals_[m]);
  }

  /// If all ranks have as many rows, NCCL gathers; else each rank broadcasts its rows.
  void gather(const BatchTensor& tensor, const Arrival& arrival) {
    const auto& rows = arrival.rows;
    std::byte* to = arrival.to;
    if (std::ranges::adjacent_find(rows, std::not_equal_to<>()) == rows.end()) {
      const std::int64_t bytes = rows.front() * tensor.row_bytes();
      if (bytes > 0) library().all_gather(tensor.input, to, bytes, comm(), stream());
      return;
    }
    for (int rank = 0; rank < size(); ++rank) {
      const std::int64_t bytes = rows[static_cast<std::size_t>(rank)] * tensor.row_bytes();
      if (bytes == 0) continue;
      library().broadcast(tensor.input, to, bytes, rank, comm(), stream());
      to += bytes;
    }
  }

  void exchange(const BatchTensor& tensor, const Arrival& arrival) {
    const auto* from = static_cast<const std::byte*>(tensor.input);
    std::byte* to = arrival.to;
    for (int peer = 0; peer < size(); ++peer) {
      const auto place = static_cast<std::size_t>(peer);
      const std::int64_t sent = tensor.counts[place] * tensor.row_bytes();
      const std::int64_t received = arrival.rows[place] * tensor.row_bytes();
      if (sent > 0) library().send(from, sent, peer, comm(), stream());
      if (received > 0) library().receive(to, received, peer, comm(), stream());
      if (sent > 0) from += sent;
      if (received > 0) to += received;
    }
  }

  std::vector<Arrival> arrivals_{};
};

}  // namespace

std::unique_ptr<Execution> make_gather(const LaunchContext& context, Batch batch) {
  return std::make_unique<Gather>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
