#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::backend::nccl {
namespace {

using RowTable = std::vector<std::int64_t>;

std::vector<std::byte> to_bytes(const RowTable& rows) {
  std::vector<std::byte> bytes(rows.size() * sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), rows.data(), bytes.size());
  return bytes;
}

/// Ranks have other numbers of rows: they tell each other first, over the CPU's backend.
class Gather : public GpuExecution {
 public:
  /// `own` has as many numbers on every rank.
  Gather(const LaunchContext& context, Batch given, const RowTable& own)
      : GpuExecution(context, std::move(given)), numbers_(cpu(), batch(), 1, to_bytes(own)) {}

 protected:
  bool prepare() final {
    if (!told_) told_ = gather(numbers_);
    return told_;
  }

  [[nodiscard]] std::int64_t told(int rank, std::size_t number) const {
    std::int64_t rows = 0;
    const auto bytes = numbers_.of(static_cast<std::size_t>(rank));
    std::memcpy(&rows, bytes.data() + number * sizeof(rows), sizeof(rows));
    return rows;
  }

  static std::int64_t bytes_of_row(const BatchTensor& tensor) {
    return tensor.row_elements * signed_size_of(tensor.dtype);
  }

 private:
  SmallAllgather numbers_;
  bool told_ = false;
};

RowTable rows_of_tensors(const Batch& batch) {
  RowTable rows;
  for (const BatchTensor* tensor : batch.tensors) rows.push_back(tensor->rows);
  return rows;
}

/// Where all ranks have as many rows NCCL gathers; else each rank broadcasts what it has.
class Allgather : public Gather {
 public:
  Allgather(const LaunchContext& context, Batch given)
      : Gather(context, given, rows_of_tensors(given)) {}

 private:
  /// Of one tensor.
  struct Arrival {
    std::byte* to = nullptr;
    RowTable rows{};  // of each rank
    bool alike = true;
  };

  bool begin() override {
    const CudaStreamScope scope(stream());
    std::int64_t all = 0;
    for (std::size_t m = 0; m < batch().tensors.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      Arrival& arrival = arrivals_.emplace_back();
      for (int rank = 0; rank < size(); ++rank) arrival.rows.push_back(told(rank, m));
      arrival.alike =
          std::ranges::adjacent_find(arrival.rows, std::not_equal_to<>()) == arrival.rows.end();
      arrival.to = allocate(batch(), tensor, arrival.rows);
      all += std::accumulate(arrival.rows.begin(), arrival.rows.end(), std::int64_t{0}) *
             bytes_of_row(tensor);
    }
    return all > 0;
  }

  void call() override {
    for (std::size_t m = 0; m < arrivals_.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      const Arrival& arrival = arrivals_[m];
      std::byte* to = arrival.to;
      if (arrival.alike) {
        const std::int64_t bytes = arrival.rows.front() * bytes_of_row(tensor);
        if (bytes > 0) library().all_gather(tensor.input, to, bytes, comm(), stream());
        continue;
      }
      for (int rank = 0; rank < size(); ++rank) {
        const std::int64_t bytes =
            arrival.rows[static_cast<std::size_t>(rank)] * bytes_of_row(tensor);
        if (bytes == 0) continue;
        library().broadcast(tensor.input, to, bytes, rank, comm(), stream());
        to += bytes;
      }
    }
  }

  std::vector<Arrival> arrivals_{};
};

RowTable counts_of_tensors(const Batch& batch) {
  RowTable counts;
  for (const BatchTensor* tensor : batch.tensors)
    counts.insert(counts.end(), tensor->counts.begin(), tensor->counts.end());
  return counts;
}

class Alltoall : public Gather {
 public:
  Alltoall(const LaunchContext& context, Batch given)
      : Gather(context, given, counts_of_tensors(given)) {}

 private:
  /// Of one tensor.
  struct Arrival {
    std::byte* to = nullptr;
    RowTable rows{};  // from each rank
  };

  bool begin() override {
    const CudaStreamScope scope(stream());
    bool any = false;
    for (std::size_t m = 0; m < batch().tensors.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      Arrival& arrival = arrivals_.emplace_back();
      for (int from = 0; from < size(); ++from) {
        const auto number =
            m * static_cast<std::size_t>(size()) + static_cast<std::size_t>(index());
        arrival.rows.push_back(told(from, number));
      }
      arrival.to = allocate(batch(), tensor, arrival.rows);
      const auto moves = [](std::int64_t rows) { return rows > 0; };
      any |= bytes_of_row(tensor) > 0 && (std::ranges::any_of(arrival.rows, moves) ||
                                          std::ranges::any_of(tensor.counts, moves));
    }
    return any;
  }

  void call() override {
    for (std::size_t m = 0; m < arrivals_.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      const auto* from = static_cast<const std::byte*>(tensor.input);
      std::byte* to = arrivals_[m].to;
      for (int peer = 0; peer < size(); ++peer) {
        const auto place = static_cast<std::size_t>(peer);
        const std::int64_t sent = tensor.counts[place] * bytes_of_row(tensor);
        const std::int64_t received = arrivals_[m].rows[place] * bytes_of_row(tensor);
        if (sent > 0) library().send(from, sent, peer, comm(), stream());
        if (received > 0) library().receive(to, received, peer, comm(), stream());
        if (sent > 0) from += sent;
        if (received > 0) to += received;
      }
    }
  }

  std::vector<Arrival> arrivals_{};
};

}  // namespace

std::unique_ptr<Execution> make_allgather(const LaunchContext& context, Batch batch) {
  return std::make_unique<Allgather>(context, std::move(batch));
}

std::unique_ptr<Execution> make_alltoall(const LaunchContext& context, Batch batch) {
  return std::make_unique<Alltoall>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
