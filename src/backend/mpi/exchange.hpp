// SPDX-License-Identifier: Apache-2.0
// The messages of one execution, between any two of its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"
#include "backend/mpi/buffer_pool.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::backend::mpi {

/// This rank's end of the network, with the state that the executions over it share.
struct Endpoint {
  /// `network` outlives this and has at least `Exchange::min_tags` tags. `bytes` are rounded down
  /// to whole elements of every type.
  Endpoint(messenger::Messenger& network, std::int64_t bytes);

  messenger::Messenger& messenger;
  int rank;
  int size;
  std::int64_t piece_bytes;  // a multiple of 8
  std::uint64_t sequences;   // that tags can tell apart
  BufferPool buffers{};
};

/// Sends and receives memory of any size, in chunks of the endpoint's `piece_bytes`, a few at a
/// time per peer, lane and direction. Messages of one rank to another on a lane are received in the
/// order of the calls, and both name the same number of bytes. Transfers of no bytes are ignored.
///
/// The memory belongs to the network until the transfer's counter is back at 0. If an exchange is
/// destroyed before that, and the network may still access the memory, buffers that came from
/// `take` are leaked on purpose.
class Exchange {
 public:
  static constexpr int lanes = 8;
  /// Those for one sequence.
  static constexpr messenger::Tag min_tags = Batch::parts * lanes;

  /// `order` is the batch's. The sequences of exchanges that are alive at once on a rank differ by
  /// less than the endpoint's `sequences`.
  Exchange(Endpoint& endpoint, std::uint64_t order);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Adds the number of the transfer's chunks to `pending`, and subtracts each when it is complete.
  void send(int peer, int lane, const std::byte* data, std::int64_t bytes, int& pending);
  void receive(int peer, int lane, std::byte* data, std::int64_t bytes, int& pending);

  /// True if a chunk was completed. Does not block. Throws BackendError.
  bool step();

  /// The ranks with which transfers are in progress, ascending.
  [[nodiscard]] std::vector<int> peers() const;

  /// Memory that lives until it is given back or the exchange ends.
  [[nodiscard]] std::byte* take(std::int64_t bytes);
  void give_back(const std::byte* buffer);

 private:
  struct Transfer {
    std::byte* data;  // of sends only read
    std::int64_t bytes;
    int* pending;
  };
  enum class Direction : std::uint8_t { send, receive };
  using Key = std::tuple<int, int, Direction>;  // peer, lane
  /// Transfers in their order. The first may be under way in part.
  struct Flow {
    const Key* key = nullptr;
    std::vector<Transfer> waiting{};
    std::size_t first = 0;  // before it, all chunks have been posted
    int under_way = 0;      // chunks
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
  int under_way_ = 0;  // chunks of all flows
  std::vector<messenger::Token> done_{};
  std::vector<Kept> kept_{};
};

}  // namespace kolo::internal::backend::mpi
