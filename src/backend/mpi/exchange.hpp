// SPDX-License-Identifier: Apache-2.0
// The messages between the ranks of one execution, and the memory for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::backend::mpi {

struct FreeBuffer {
  void operator()(std::byte* buffer) const;
};

/// Aligned to cache lines.
using Buffer = std::unique_ptr<std::byte[], FreeBuffer>;

/// A pool of buffers for transfers, kept from batch to batch. Used by one thread at a time.
class BufferPool {
 public:
  /// Returns at least `bytes` of uninitialized memory.
  [[nodiscard]] Buffer take(std::int64_t bytes);
  /// `bytes` is the size that was passed to `take`. The pool keeps at most 64 MiB, and a few
  /// buffers of each size.
  void give_back(Buffer buffer, std::int64_t bytes);

 private:
  // Indexed by the logarithm of the size.
  std::array<std::vector<Buffer>, 64> free_;
  std::int64_t kept_bytes_ = 0;
};

/// This rank's end of the network, and the state that its executions share.
struct Endpoint {
  /// `network` must outlive the endpoint and have at least `Exchange::min_tags` tags. `bytes` is
  /// rounded down to whole elements of every type.
  Endpoint(messenger::Messenger& network, std::int64_t bytes);

  messenger::Messenger& messenger;
  int rank;
  int size;
  std::int64_t piece_bytes;  // a multiple of 8
  std::uint64_t sequences;   // the number of sequences that tags can distinguish
  BufferPool buffers{};
};

/// Sends and receives memory of any size in chunks of the endpoint's `piece_bytes`, several at a
/// time for each peer, lane and direction. Messages from one rank to another on a lane are received
/// in the order of the calls, and both sides give the same number of bytes. Empty transfers are
/// ignored.
///
/// The network may access the memory until the transfer's counter is back at 0. If an exchange is
/// destroyed before that, buffers from `take` that the network may still access are leaked on
/// purpose.
class Exchange {
 public:
  static constexpr int lanes = 8;
  /// The number of tags for one sequence.
  static constexpr messenger::Tag min_tags = Batch::parts * lanes;

  /// `order` is the batch's `Batch::order`. Tags repeat after `Endpoint::sequences` batches, so the
  /// sequences of batches whose exchanges exist on a rank at the same time must differ by less.
  Exchange(Endpoint& endpoint, std::uint64_t order);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Adds the number of the transfer's chunks to `pending`, and subtracts 1 for each completed
  /// chunk.
  void send(int peer, int lane, const std::byte* data, std::int64_t bytes, int& pending);
  void receive(int peer, int lane, std::byte* data, std::int64_t bytes, int& pending);

  /// Advances transfers without blocking. True if a chunk was completed. Throws BackendError.
  bool step();

  /// The ranks with which transfers are in progress, ascending.
  [[nodiscard]] std::vector<int> peers() const;

  /// Returns memory that is valid until it is given back or the exchange ends.
  [[nodiscard]] std::byte* take(std::int64_t bytes);
  void give_back(const std::byte* buffer);

 private:
  struct Transfer {
    std::byte* data;  // sends only read it
    std::int64_t bytes;
    int* pending;
  };
  enum class Direction : std::uint8_t { send, receive };
  using Key = std::tuple<int, int, Direction>;  // peer, lane
  /// Transfers in order. The first one may be posted in part.
  struct Flow {
    const Key* key = nullptr;
    std::vector<Transfer> waiting{};
    std::size_t first = 0;  // all chunks of earlier transfers have been posted
    int under_way = 0;      // chunks in flight
  };
  struct Kept {
    Buffer buffer;
    std::int64_t bytes;
  };

  void add(const Key& key, const Transfer& transfer);
  void post(Flow& flow);
  void post_chunk(Flow& flow, Transfer& transfer);

  Endpoint& endpoint_;
  messenger::Channel& channel_;
  messenger::Tag first_tag_;
  std::map<Key, Flow> flows_{};
  int under_way_ = 0;  // chunks in flight of all flows
  std::vector<messenger::Token> done_{};
  std::vector<Kept> kept_{};
};

}  // namespace kolo::internal::backend::mpi
