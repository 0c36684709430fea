// SPDX-License-Identifier: Apache-2.0
// The workload of a training step: reduces every gradient by its name, starting with the last
// layer.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "elements.hpp"
#include "pattern.hpp"
#include "workload.hpp"

namespace perf {
namespace {

/// A phase that differs between gradients, so that mixed-up gradients give wrong elements.
std::int64_t phase_of(std::size_t gradient, std::int64_t phase) {
  return phase + 31 * static_cast<std::int64_t>(gradient);
}

class GradientWorkload : public Workload {
 public:
  GradientWorkload(Gradients gradients, const Case& row, const World& world)
      : world_(world),
        row_(row),
        peer_(row.peer.value_or(Peer::flat)),
        gradients_(std::move(gradients)),
        contiguous_(peer_ == Peer::each ? 0 : GradientWorkload::elements() * size_of(row.dtype)),
        input_(row.dtype, input_values(row.dtype, row.reduce_op, world.rank(), world.size())),
        wanted_{result(row.reduce_op), result(peer_op(row.reduce_op))} {
    std::ranges::reverse(gradients_);
    for (const Gradient& gradient : gradients_)
      buffers_.emplace_back(gradient.shape.elements() * size_of(row.dtype), row.memory, row.gpu);
    futures_.reserve(gradients_.size());
  }

  void fill(Side side, std::int64_t phase) override {
    if (is_flat(side)) return input_.fill(contiguous_.bytes(), phase);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      input_.fill(buffers_[i].bytes(), phase_of(i, phase));
      buffers_[i].upload();
    }
  }
  void fetch() override {
    for (Buffer& buffer : buffers_) buffer.fetch();
  }

  void run(Side side) override {
    if (side == Side::kolo) return run_kolo();
    switch (peer_) {
      case Peer::flat: return reduce(contiguous_);
      case Peer::each:
        for (Buffer& buffer : buffers_) reduce(buffer);
        return;
      case Peer::packed:
        pack();
        reduce(contiguous_);
        return unpack();
    }
  }

  [[nodiscard]] std::int64_t count_wrong(Side side, std::int64_t phase) const override {
    const PeriodicTable& wanted = wanted_[static_cast<std::size_t>(side)];
    if (is_flat(side)) return wanted.count_wrong(contiguous_.bytes(), phase);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      wrong += wanted.count_wrong(buffers_[i].bytes(), phase_of(i, phase));
    return wrong;
  }

  [[nodiscard]] bool has_peer() const override {
    std::int64_t max_count = elements();
    if (peer_ == Peer::each) {
      max_count = 0;
      for (const Gradient& gradient : gradients_)
        max_count = std::max(max_count, gradient.shape.elements());
    }
    return !row_.gpu && reduced_type(row_.dtype) != MPI_DATATYPE_NULL && fits_mpi_count(max_count);
  }

  [[nodiscard]] std::int64_t elements() const override { return count_elements(gradients_); }
  [[nodiscard]] std::int64_t tensors() const override {
    return static_cast<std::int64_t>(gradients_.size());
  }

 private:
  [[nodiscard]] PeriodicTable result(kolo::ReduceOp op) const {
    return {row_.dtype, reduced_values(row_.dtype, op, row_.reduce_op, world_.size())};
  }

  [[nodiscard]] bool is_flat(Side side) const { return side == Side::mpi && peer_ == Peer::flat; }

  void run_kolo() {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      futures_.push_back(kolo::allreduce_async(buffers_[i].view(gradients_[i].shape, row_.dtype),
                                               {.name = gradients_[i].name, .op = row_.reduce_op}));
    for (kolo::Future<void>& future : futures_) future.wait();
    futures_.clear();
  }

  void reduce(Buffer& buffer) {
    const auto elements = static_cast<std::int64_t>(buffer.bytes().size()) / size_of(row_.dtype);
    MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(elements), reduced_type(row_.dtype),
                  mpi_op(row_.dtype, row_.reduce_op), world_.comm());
  }

  void pack() {
    std::byte* to = contiguous_.data();
    for (const Buffer& buffer : buffers_) {
      std::memcpy(to, buffer.bytes().data(), buffer.bytes().size());
      to += buffer.bytes().size();
    }
  }

  void unpack() {
    const std::byte* from = contiguous_.data();
    for (Buffer& buffer : buffers_) {
      std::memcpy(buffer.data(), from, buffer.bytes().size());
      from += buffer.bytes().size();
    }
  }

  const World& world_;
  Case row_;
  Peer peer_;
  Gradients gradients_;  // in the order of backward, which is the reverse of the layers
  std::vector<Buffer> buffers_;
  Buffer contiguous_;  // all gradients end to end, for MPI
  PeriodicTable input_;
  std::vector<PeriodicTable> wanted_;  // indexed by side: MPI lacks `average`
  std::vector<kolo::Future<void>> futures_;
};

}  // namespace

std::unique_ptr<Workload> make_gradient_workload(Gradients gradients, const Case& row,
                                                 const World& world) {
  return std::make_unique<GradientWorkload>(std::move(gradients), row, world);
}

}  // namespace perf
