// What the collectives over MPI have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/backend.hpp"
#include "backend/mpi/exchange.hpp"
#include "backend/pieces.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::mpi {

/// The ranks that take part are known by their index in the batch's `ranks`.
class Collective : public Execution {
 public:
  /// `index` is this rank's.
  Collective(Endpoint& endpoint, Batch batch, int index)
      : endpoint_(endpoint),
        batch_(std::move(batch)),
        index_(index),
        exchange_(endpoint, batch_.order()) {}

  [[nodiscard]] Awaited waits_for() const final {
    return {exchange_.peers(), "to exchange data over MPI"};
  }

 protected:
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] std::span<const BatchTensor* const> tensors() const { return batch_.tensors; }
  [[nodiscard]] std::int64_t piece_bytes() const { return endpoint_.piece_bytes; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(batch_.ranks.size()); }
  /// The rank in the communicator.
  [[nodiscard]] int rank_of(int index) const {
    return batch_.ranks[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Exchange& exchange() { return exchange_; }

 private:
  Endpoint& endpoint_;
  Batch batch_;
  int index_;
  Exchange exchange_;
};

/// Moves a batch through the network piece by piece, a few of them at once. All ranks begin the
/// pieces in the same order, and the piece with number i only after all messages of piece
/// i - `under_way`, whose lanes it uses: so no lane mixes pieces.
class PiecewiseCollective : public Collective {
 public:
  static constexpr std::size_t max_pieces = 8;

  /// At most `under_way` pieces are, of at most `max_pieces`.
  PiecewiseCollective(Endpoint& endpoint, Batch batch, int index, std::size_t under_way)
      : Collective(endpoint, std::move(batch), index), under_way_(under_way) {}

  [[nodiscard]] Progress step() final;

 protected:
  /// Counts bytes of `dtype` that were computed or copied, so that a step ends in time. The
  /// arithmetic of half types takes about eight times as long.
  void worked(std::int64_t bytes, DType dtype) { work_ += is_half(dtype) ? 8 * bytes : bytes; }

 private:
  /// Begins the next piece, whose number is below `under_way`, and posts its first messages.
  virtual NextPiece begin(std::size_t number) = 0;
  /// Does what the piece's completed messages allow.
  virtual Progress advance(std::size_t number) = 0;

  bool advance_all();
  bool begin_more();

  std::size_t under_way_;
  std::array<bool, max_pieces> busy_{};
  std::int64_t work_ = 0;  // in this step
  // Pieces in the order of their beginning; the i-th has the number i % under_way_.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
  bool all_begun_ = false;
};

// `index` is this rank's in the batch's `ranks`. All of these throw InvalidArgument for a batch
// that cannot be executed.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Endpoint& endpoint, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_adasum(Endpoint& endpoint, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Endpoint& endpoint, Batch batch,
                                                            int index);
/// Allgather and alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Endpoint& endpoint, Batch batch, int index);
/// Of tensors or of a text.
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Endpoint& endpoint, Batch batch, int index);

}  // namespace kolo::internal::backend::mpi
