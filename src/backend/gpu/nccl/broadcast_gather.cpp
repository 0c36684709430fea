// SPDX-License-Identifier: Apache-2.0
// Broadcasts, allgathers and alltoalls over NCCL.
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Broadcasts each tensor in place. NCCL runs the broadcasts of a group together.
class Broadcast : public Collective {
 public:
  using Collective::Collective;

 private:
  bool begin() override {
    return std::ranges::any_of(batch().tensors,
                               [](const BatchTensor* tensor) { return tensor->elements() > 0; });
  }

  /// NCCL writes the output of every rank, but copies nothing on a root whose output is its input.
  void call() override {
    const int root = root_index(batch());
    for (const BatchTensor* tensor : batch().tensors) {
      if (tensor->bytes() > 0)
        library().broadcast(tensor->input, tensor->output, tensor->bytes(), root, comm(), stream());
    }
  }
};

/// A tensor with at least this many bytes from all ranks together stays in place: packing would
/// cost more than the calls that it saves.
constexpr std::int64_t min_bytes_in_place = 4 << 20;
/// A gather may pad the ranks' parts to equal lengths if this at most doubles the bytes to move.
constexpr std::int64_t max_padding = 2;

/// The result of one tensor.
struct Arrival {
  const BatchTensor* tensor = nullptr;
  std::byte* to = nullptr;
  std::vector<std::int64_t> rows{};  // from each rank

  [[nodiscard]] std::int64_t bytes_from(std::size_t rank) const {
    return rows[rank] * tensor->row_bytes();
  }
  [[nodiscard]] std::int64_t bytes() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) * tensor->row_bytes();
  }
  [[nodiscard]] bool is_even() const {
    return std::ranges::adjacent_find(rows, std::not_equal_to<>()) == rows.end();
  }
};

/// A collective whose ranks have different numbers of rows. They exchange these first, over the
/// backend for CPU tensors.
class RowCollective : public Collective {
 public:
  RowCollective(const LaunchContext& context, Batch given) : Collective(context, std::move(given)) {
    const std::vector<std::int64_t> rows = sent_rows(batch());
    exchange_numbers(std::as_bytes(std::span(rows)));
  }

 protected:
  /// Allocates the results. Each rank has sent numbers of rows for `targets` ranks; those at index
  /// `own` are for this rank.
  void allocate_results(std::size_t targets, std::size_t own) {
    const CudaStreamScope scope(stream());
    for (std::size_t m = 0; m < batch().tensors.size(); ++m) {
      Arrival& arrival = arrivals_.emplace_back();
      arrival.tensor = batch().tensors[m];
      for (std::size_t rank = 0; rank < batch().ranks.size(); ++rank)
        arrival.rows.push_back(gathered().get<std::int64_t>(rank, m * targets + own));
      arrival.to = allocate(batch(), *arrival.tensor, arrival.rows);
    }
  }
  [[nodiscard]] const std::vector<Arrival>& arrivals() const { return arrivals_; }

 private:
  std::vector<Arrival> arrivals_{};
};

/// Packs small tensors with few launches, gathers them with one call (or with one broadcast per
/// rank if padding would cost too much), and unpacks them with few launches. NCCL takes long to
/// plan a group of many calls.
class Allgather : public RowCollective {
 public:
  Allgather(const LaunchContext& context, Batch given) : RowCollective(context, std::move(given)) {}

 private:
  void prepare() override { allocate_results(1, 0); }

  bool begin() override {
    for (const Arrival& arrival : arrivals())
      if (arrival.bytes() > 0) (stays(arrival) ? in_place_ : packed_).push_back(&arrival);
    if (!packed_.empty()) pack();
    before_.launch(gpu(), stream());
    return !in_place_.empty() || !packed_.empty();
  }

  void call() override {
    for (const Arrival* arrival : in_place_) {
      std::vector<std::int64_t> bytes;
      for (std::size_t rank = 0; rank < arrival->rows.size(); ++rank)
        bytes.push_back(arrival->bytes_from(rank));
      gather(arrival->tensor->input, arrival->to, bytes, arrival->is_even());
    }
    if (packed_.empty()) return;
    const auto own = static_cast<std::size_t>(index());
    gather(buffer_ + offsets_[own], buffer_, bytes_, is_padded_);
  }

  void end() override { after_.launch(gpu(), stream()); }

  [[nodiscard]] bool stays(const Arrival& arrival) const {
    return arrival.bytes() >= min_bytes_in_place ||
           (batch().tensors.size() == 1 && arrival.is_even());
  }

  /// Lays out the buffer: one part per rank, which has the rows of all packed tensors.
  void pack() {
    const auto ranks = static_cast<std::size_t>(size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::int64_t part = 0;
      for (const Arrival* arrival : packed_) part += aligned(arrival->bytes_from(rank));
      bytes_.push_back(part);
    }
    const std::int64_t total = std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
    const std::int64_t longest = std::ranges::max(bytes_);
    is_padded_ = longest * size() <= max_padding * total;
    if (is_padded_) bytes_.assign(ranks, longest);
    std::int64_t offset = 0;
    for (const std::int64_t bytes : bytes_) {
      offsets_.push_back(offset);
      offset += bytes;
    }
    buffer_ = communicator().buffer(static_cast<std::size_t>(offset));
    for (std::size_t rank = 0; rank < ranks; ++rank) add_copies(rank);
  }

  void add_copies(std::size_t rank) {
    std::byte* place = buffer_ + offsets_[rank];
    for (const Arrival* arrival : packed_) {
      const BatchTensor& tensor = *arrival->tensor;
      const std::int64_t elements = arrival->rows[rank] * tensor.row_elements;
      const DType type = tensor.dtype == DType::boolean ? DType::u8 : tensor.dtype;
      const auto sender = static_cast<std::ptrdiff_t>(rank);
      const std::int64_t first_row =
          std::accumulate(arrival->rows.begin(), arrival->rows.begin() + sender, std::int64_t{0});
      if (rank == static_cast<std::size_t>(index()))
        before_.add({static_cast<const std::byte*>(tensor.input), place, elements, {}, type, type});
      after_.add({place, arrival->to + first_row * tensor.row_bytes(), elements, {}, type, type});
      place += aligned(arrival->bytes_from(rank));
    }
  }

  /// `even` means that all ranks have equally many bytes.
  void gather(const void* from, std::byte* to, const std::vector<std::int64_t>& bytes, bool even) {
    if (even) return library().all_gather(from, to, bytes.front(), comm(), stream());
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const int root = static_cast<int>(rank);
      if (bytes[rank] > 0)
        library().broadcast(root == index() ? from : to, to, bytes[rank], root, comm(), stream());
      to += bytes[rank];
    }
  }

  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

  std::vector<const Arrival*> in_place_{};
  std::vector<const Arrival*> packed_{};
  std::byte* buffer_ = nullptr;          // for the packed tensors
  std::vector<std::int64_t> bytes_{};    // bytes of each rank's part
  std::vector<std::int64_t> offsets_{};  // each rank's offset in the buffer
  bool is_padded_ = false;
  gpu::TransferLaunch before_{};
  gpu::TransferLaunch after_{};
};

/// Sends every other rank its rows, tensor by tensor.
class Alltoall : public RowCollective {
 public:
  using RowCollective::RowCollective;

 private:
  void prepare() override {
    allocate_results(static_cast<std::size_t>(size()), static_cast<std::size_t>(index()));
  }

  bool begin() override {
    const auto any = [](const std::vector<std::int64_t>& rows) {
      return std::ranges::any_of(rows, [](std::int64_t count) { return count > 0; });
    };
    return std::ranges::any_of(arrivals(), [&](const Arrival& arrival) {
      return arrival.tensor->row_bytes() > 0 && (any(arrival.rows) || any(arrival.tensor->counts));
    });
  }

  void call() override {
    for (const Arrival& arrival : arrivals()) exchange(*arrival.tensor, arrival);
  }

  void exchange(const BatchTensor& tensor, const Arrival& arrival) {
    const auto* from = static_cast<const std::byte*>(tensor.input);
    std::byte* to = arrival.to;
    for (int peer = 0; peer < size(); ++peer) {
      const auto place = static_cast<std::size_t>(peer);
      const std::int64_t sent = tensor.counts[place] * tensor.row_bytes();
      const std::int64_t received = arrival.bytes_from(place);
      if (sent > 0) library().send(from, sent, peer, comm(), stream());
      if (received > 0) library().receive(to, received, peer, comm(), stream());
      if (sent > 0) from += sent;
      if (received > 0) to += received;
    }
  }
};

}  // namespace

std::shared_ptr<Collective> make_broadcast(const LaunchContext& context, Batch batch) {
  return std::make_shared<Broadcast>(context, std::move(batch));
}

std::shared_ptr<Collective> make_gather(const LaunchContext& context, Batch batch) {
  if (batch.kind.type == OperationType::alltoall)
    return std::make_shared<Alltoall>(context, std::move(batch));
  return std::make_shared<Allgather>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
