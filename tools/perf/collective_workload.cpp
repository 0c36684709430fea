// SPDX-License-Identifier: Apache-2.0
// Workloads of one operation on one tensor.
#include <algorithm>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "elements.hpp"
#include "pattern.hpp"
#include "workload.hpp"

namespace perf {
namespace {

using kolo::ReduceOp;

/// Base of the workloads with one tensor per rank.
class TensorWorkload : public Workload {
 public:
  /// `elements` is counted as `Workload::elements` does.
  TensorWorkload(const Case& row, const World& world, std::int64_t elements)
      : world_(world), dtype_(row.dtype), op_(row.reduce_op), elements_(elements), gpu_(row.gpu) {}

  [[nodiscard]] std::int64_t elements() const override { return elements_; }
  [[nodiscard]] std::int64_t tensors() const override { return 1; }

 protected:
  [[nodiscard]] std::int64_t bytes(std::int64_t elements) const {
    return elements * size_of(dtype_);
  }
  /// Elements of one rank's equal share.
  [[nodiscard]] std::int64_t share() const { return elements_ / world_.size(); }

  [[nodiscard]] PeriodicTable inputs(ReduceOp op, int rank) const {
    return {dtype_, input_values(dtype_, op, rank, world_.size())};
  }
  [[nodiscard]] PeriodicTable results(ReduceOp op) const {
    return {dtype_, reduced_values(dtype_, op, op_, world_.size())};
  }

  [[nodiscard]] Buffer make_buffer(std::int64_t elements) const {
    return Buffer(bytes(elements), Memory::own, gpu_);
  }

  [[nodiscard]] bool mpi_reduces() const {
    return mpi_moves(elements_) && reduced_type(dtype_) != MPI_DATATYPE_NULL;
  }
  [[nodiscard]] bool mpi_moves(std::int64_t elements) const {
    return !gpu_ && fits_mpi_count(elements);
  }

  const World& world_;
  kolo::DType dtype_;
  ReduceOp op_;
  std::int64_t elements_;
  std::optional<kolo::CudaDevice> gpu_;
};

class Allreduce : public TensorWorkload {
 public:
  Allreduce(const Case& row, const World& world, std::int64_t elements)
      : TensorWorkload(row, world, elements),
        buffer_(bytes(elements), row.memory, row.gpu),
        input_(inputs(op_, world.rank())),
        wanted_{results(op_), results(peer_op(op_))} {}

  void fill(Side /*side*/, std::int64_t phase) override {
    input_.fill(buffer_.bytes(), phase);
    buffer_.upload();
  }
  void fetch() override { buffer_.fetch(); }

  void run(Side side) override {
    if (side == Side::kolo)
      kolo::allreduce(buffer_.view(kolo::Shape(elements_), dtype_),
                      {.name = "allreduce", .op = op_});
    else
      MPI_Allreduce(MPI_IN_PLACE, buffer_.data(), static_cast<int>(elements_), reduced_type(dtype_),
                    mpi_op(dtype_, op_), world_.comm());
  }

  [[nodiscard]] std::int64_t count_wrong(Side side, std::int64_t phase) const override {
    return wanted_[static_cast<std::size_t>(side)].count_wrong(buffer_.bytes(), phase);
  }

  [[nodiscard]] bool has_peer() const override { return mpi_reduces(); }

 private:
  Buffer buffer_;
  PeriodicTable input_;
  std::vector<PeriodicTable> wanted_;  // indexed by side: MPI lacks `average`
};

class Reducescatter : public TensorWorkload {
 public:
  Reducescatter(const Case& row, const World& world, std::int64_t elements)
      : TensorWorkload(row, world, elements),
        from_(make_buffer(elements)),
        to_(make_buffer(share())),
        input_(inputs(op_, world.rank())),
        wanted_{results(op_), results(peer_op(op_))} {}

  void fill(Side /*side*/, std::int64_t phase) override {
    input_.fill(from_.bytes(), phase);
    spoil(to_.bytes());
    from_.upload();
    to_.upload();
  }
  void fetch() override { to_.fetch(); }

  void run(Side side) override {
    if (side == Side::kolo)
      kolo::reducescatter(kolo::ConstTensorView(from_.view(kolo::Shape(elements_), dtype_)),
                          to_.view(kolo::Shape(share()), dtype_),
                          {.name = "reducescatter", .op = op_});
    else
      MPI_Reduce_scatter_block(from_.data(), to_.data(), static_cast<int>(share()),
                               reduced_type(dtype_), mpi_op(dtype_, op_), world_.comm());
  }

  [[nodiscard]] std::int64_t count_wrong(Side side, std::int64_t phase) const override {
    return wanted_[static_cast<std::size_t>(side)].count_wrong(to_.bytes(),
                                                               phase + share() * world_.rank());
  }

  [[nodiscard]] bool has_peer() const override { return mpi_reduces(); }

 private:
  Buffer from_;
  Buffer to_;
  PeriodicTable input_;
  std::vector<PeriodicTable> wanted_;
};

/// Data is only moved, so the workload uses the inputs for `max`, which have the most distinct
/// values.
class Broadcast : public TensorWorkload {
 public:
  Broadcast(const Case& row, const World& world, std::int64_t elements)
      : TensorWorkload(row, world, elements),
        buffer_(make_buffer(elements)),
        input_(inputs(ReduceOp::max, root)) {}

  void fill(Side /*side*/, std::int64_t phase) override {
    if (world_.rank() == root)
      input_.fill(buffer_.bytes(), phase);
    else
      spoil(buffer_.bytes());
    buffer_.upload();
  }
  void fetch() override { buffer_.fetch(); }

  void run(Side side) override {
    if (side == Side::kolo)
      kolo::broadcast(buffer_.view(kolo::Shape(elements_), dtype_), root, {.name = "broadcast"});
    else
      MPI_Bcast(buffer_.data(), static_cast<int>(elements_), moved_type(dtype_), root,
                world_.comm());
  }

  [[nodiscard]] std::int64_t count_wrong(Side /*side*/, std::int64_t phase) const override {
    return input_.count_wrong(buffer_.bytes(), phase);
  }

  [[nodiscard]] bool has_peer() const override { return mpi_moves(elements_); }

 private:
  static constexpr int root = 0;

  Buffer buffer_;
  PeriodicTable input_;
};

/// Every rank receives one share of the elements from each rank, in rank order.
class ShareExchange : public TensorWorkload {
 public:
  /// `source_elements`: the number of elements that each rank sends. `offset`: the first element of
  /// a sender's share for this rank.
  ShareExchange(const Case& row, const World& world, std::int64_t elements,
                std::int64_t source_elements, std::int64_t offset)
      : TensorWorkload(row, world, elements),
        from_(make_buffer(source_elements)),
        to_(make_buffer(elements)),
        offset_(offset) {
    for (int rank = 0; rank < world.size(); ++rank) inputs_.push_back(inputs(ReduceOp::max, rank));
  }

  void fill(Side /*side*/, std::int64_t phase) override {
    inputs_[static_cast<std::size_t>(world_.rank())].fill(from_.bytes(), phase);
    spoil(to_.bytes());
    from_.upload();
    to_.upload();
  }
  void fetch() override { to_.fetch(); }

  [[nodiscard]] std::int64_t count_wrong(Side /*side*/, std::int64_t phase) const override {
    const auto length = static_cast<std::size_t>(bytes(share()));
    std::int64_t wrong = 0;
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank)
      wrong +=
          inputs_[rank].count_wrong(to_.bytes().subspan(rank * length, length), phase + offset_);
    return wrong;
  }

  [[nodiscard]] bool has_peer() const override { return mpi_moves(share()); }

 protected:
  Buffer from_;
  Buffer to_;

 private:
  std::int64_t offset_;
  std::vector<PeriodicTable> inputs_;  // indexed by rank
};

class Allgather : public ShareExchange {
 public:
  Allgather(const Case& row, const World& world, std::int64_t elements)
      : ShareExchange(row, world, elements, elements / world.size(), 0) {}

  void run(Side side) override {
    if (side == Side::kolo)
      kolo::allgather(kolo::ConstTensorView(from_.view(kolo::Shape(share()), dtype_)),
                      [this](std::span<const std::int64_t>) -> void* { return to_.tensor(); },
                      {.name = "allgather"});
    else
      MPI_Allgather(from_.data(), static_cast<int>(share()), moved_type(dtype_), to_.data(),
                    static_cast<int>(share()), moved_type(dtype_), world_.comm());
  }
};

class Alltoall : public ShareExchange {
 public:
  Alltoall(const Case& row, const World& world, std::int64_t elements)
      : ShareExchange(row, world, elements, elements, elements / world.size() * world.rank()),
        counts_(static_cast<std::size_t>(world.size()), share()) {}

  void run(Side side) override {
    if (side == Side::kolo)
      kolo::alltoall(kolo::ConstTensorView(from_.view(kolo::Shape(elements_), dtype_)), counts_,
                     [this](std::span<const std::int64_t>) -> void* { return to_.tensor(); },
                     {.name = "alltoall"});
    else
      MPI_Alltoall(from_.data(), static_cast<int>(share()), moved_type(dtype_), to_.data(),
                   static_cast<int>(share()), moved_type(dtype_), world_.comm());
  }

 private:
  std::vector<std::int64_t> counts_;
};

/// A barrier has no data to verify: `Meter` checks by the clock that no rank left before the last
/// rank entered.
class Barrier : public Workload {
 public:
  explicit Barrier(const World& world) : world_(world) {}

  void fill(Side /*side*/, std::int64_t /*phase*/) override {}
  void fetch() override {}
  void run(Side side) override {
    if (side == Side::kolo)
      kolo::barrier({.name = "barrier"});
    else
      MPI_Barrier(world_.comm());
  }
  [[nodiscard]] std::int64_t count_wrong(Side /*side*/, std::int64_t /*phase*/) const override {
    return 0;
  }
  [[nodiscard]] bool has_peer() const override { return true; }
  [[nodiscard]] std::int64_t elements() const override { return 0; }
  [[nodiscard]] std::int64_t tensors() const override { return 0; }

 private:
  const World& world_;
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::unique_ptr<Workload> make_collective_workload(const Case& row, const World& world) {
  const std::int64_t whole = divide_up(row.bytes, size_of(row.dtype));
  const std::int64_t shared = divide_up(whole, world.size()) * world.size();
  switch (row.operation) {
    case Operation::allreduce: return std::make_unique<Allreduce>(row, world, whole);
    case Operation::broadcast: return std::make_unique<Broadcast>(row, world, whole);
    case Operation::allgather: return std::make_unique<Allgather>(row, world, shared);
    case Operation::alltoall: return std::make_unique<Alltoall>(row, world, shared);
    case Operation::reducescatter: return std::make_unique<Reducescatter>(row, world, shared);
    case Operation::barrier: return std::make_unique<Barrier>(world);
  }
  throw std::logic_error("an operation without a workload");
}

}  // namespace perf
