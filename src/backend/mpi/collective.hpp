// SPDX-License-Identifier: Apache-2.0
// Base classes of the collectives over the network.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/exchange.hpp"
#include "backend/pieces.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::mpi {

/// A collective over the network. Identifies the participating ranks by their index in the batch's
/// `ranks`.
class Collective : public Execution {
 public:
  Collective(Endpoint& endpoint, Batch batch)
      : endpoint_(endpoint),
        batch_(std::move(batch)),
        index_(index_of(endpoint.rank, batch_)),
        exchange_(endpoint, batch_.order()) {}

  [[nodiscard]] Awaited waits_for() const final {
    return {exchange_.peers(), "to exchange data over the network"};
  }

 protected:
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] std::span<const BatchTensor* const> tensors() const { return batch_.tensors; }
  [[nodiscard]] std::int64_t piece_bytes() const { return endpoint_.piece_bytes; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(batch_.ranks.size()); }
  /// The rank in the world, which is the rank in the messenger.
  [[nodiscard]] int rank_of(int index) const {
    return batch_.ranks[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Exchange& exchange() { return exchange_; }
  using TimePoint = messenger::Messenger::TimePoint;
  [[nodiscard]] TimePoint now() const { return endpoint_.messenger.now(); }
  /// Calls `use(to, from)` with every other rank once as `to` and once as `from`. Each rank starts
  /// with its neighbors, to spread the load.
  template <typename Use>
  void for_each_other(Use use) const {
    for (int distance = 1; distance < size(); ++distance)
      use((index_ + distance) % size(), (index_ + size() - distance) % size());
  }

 private:
  Endpoint& endpoint_;
  Batch batch_;
  int index_;
  Exchange exchange_;
};

/// Moves a batch through the network in pieces, several at a time. All ranks begin the pieces in
/// the same order, and messages of pieces that share a lane must follow it.
class PiecewiseCollective : public Collective {
 public:
  /// The number of lanes. If a piece's number is its lane, no two pieces share one.
  static constexpr std::size_t pieces_on_own_lanes = Exchange::lanes;
  static constexpr std::size_t max_pieces = 64;

  /// At most `under_way` pieces are in progress at first, and at most `max_under_way` later, up to
  /// `max_pieces`.
  PiecewiseCollective(Endpoint& endpoint, Batch batch, std::size_t under_way,
                      std::size_t max_under_way)
      : Collective(endpoint, std::move(batch)),
        under_way_(under_way),
        max_under_way_(max_under_way) {}

  [[nodiscard]] Progress step() final;

 protected:
  /// Counts bytes of `dtype` that were computed or copied, to end the step in time. Arithmetic on
  /// half types takes about eight times as long.
  void worked(std::int64_t bytes, DType dtype) { work_ += is_half(dtype) ? 8 * bytes : bytes; }
  /// The maximum number of pieces in progress. It may differ between ranks.
  [[nodiscard]] std::size_t under_way() const { return under_way_; }
  void set_under_way(std::size_t pieces) { under_way_ = std::min(pieces, max_under_way_); }

 private:
  /// Begins the next piece, with a number below `max_under_way`, and posts its first messages.
  virtual NextPiece begin(std::size_t number) = 0;
  /// Advances the piece as far as its completed messages allow.
  virtual Progress advance(std::size_t number) = 0;

  bool advance_all();
  bool begin_more();

  std::size_t under_way_;
  std::size_t max_under_way_;
  std::array<bool, max_pieces> busy_{};
  std::int64_t work_ = 0;  // in the current step
  // Indices of pieces in the order of their start; piece i has the number i % max_under_way_.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
  bool all_begun_ = false;
};

/// The base class of reductions: a rank receives the others' versions of its slice of a piece, and
/// reduces all versions in rank order.
class PiecewiseReduction : public PiecewiseCollective {
 protected:
  using PiecewiseCollective::PiecewiseCollective;

  struct Versions {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;  // the size of each version
    int receiving = 0;
  };

  void receive_versions(Versions& versions, std::int64_t bytes, int lane);
  /// All versions in rank order, including `own`. Valid until the next call.
  [[nodiscard]] reduction::Inputs in_rank_order(const Versions& versions, const std::byte* own);

 private:
  [[nodiscard]] std::byte* version(const Versions& versions, int from) const;

  std::vector<const std::byte*> inputs_{};
};

// These functions throw InvalidArgument for a batch that cannot be executed.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Endpoint& endpoint, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_adasum(Endpoint& endpoint, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Endpoint& endpoint, Batch batch);
/// Creates an allgather or alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Endpoint& endpoint, Batch batch);
/// Creates a broadcast of tensors or of a text.
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Endpoint& endpoint, Batch batch);

}  // namespace kolo::internal::backend::mpi
