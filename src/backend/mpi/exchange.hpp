// SPDX-License-Identifier: Apache-2.0
// The messages of one execution, between any two of its ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"
#include "backend/mpi/buffer_pool.hpp"

namespace kolo::internal::backend::mpi {

/// The highest tag that every MPI has.
inline constexpr int guaranteed_max_tag = 32767;
/// The highest tag of this MPI, the same on all ranks.
[[nodiscard]] int find_max_tag();

/// This rank's end of a communicator, with the state that the executions over it share.
struct Endpoint {
  /// `bytes` are rounded down to whole elements of every type. `max_tag`, the same on all ranks, is
  /// the highest tag to be used: at least `Exchange::min_max_tag`.
  Endpoint(MPI_Comm communicator, std::int64_t bytes, int max_tag = guaranteed_max_tag);

  MPI_Comm comm;
  int rank = 0;
  int size = 1;
  std::int64_t piece_bytes;  // a multiple of 8
  std::uint64_t sequences;   // that tags can tell apart
  BufferPool buffers{};
};

/// Sends and receives memory of any size, in chunks of the endpoint's `piece_bytes`, a few at a
/// time per peer, lane and direction. Messages of one rank to another on a lane are received in the
/// order of the calls, and both name the same number of bytes. Transfers of no bytes are ignored.
///
/// The memory belongs to the network until the transfer's counter is back at 0. If an exchange is
/// destroyed before that, buffers that came from `take` are leaked on purpose.
class Exchange {
 public:
  static constexpr int lanes = 8;
  /// That of an endpoint with tags for one sequence.
  static constexpr int min_max_tag = static_cast<int>(Batch::parts) * lanes - 1;

  /// `order` is the batch's. The sequences of exchanges that are alive at once on a rank differ by
  /// less than the endpoint's `sequences`.
  Exchange(Endpoint& endpoint, std::uint64_t order);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Adds the number of the transfer's chunks to `pending`, and subtracts each when it is complete.
  /// `peer` is a rank of the communicator.
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
    std::vector<Transfer> waiting{};
    std::size_t first = 0;  // before it, all chunks have been posted
    int under_way = 0;      // chunks
  };
  struct Chunk {
    const Key* key;
    Flow* flow;
    int* pending;
  };
  struct Kept {
    Buffer buffer;
    std::int64_t bytes;
  };

  void withdraw_receives();
  void add(const Key& key, const Transfer& transfer);
  void post(const Key& key, Flow& flow);
  void post_chunk(const Key& key, Flow& flow, Transfer& transfer);

  Endpoint& endpoint_;
  int first_tag_;
  std::map<Key, Flow> flows_{};
  // Parallel arrays: the requests of MPI, and their chunks.
  std::vector<MPI_Request> requests_{};
  std::vector<Chunk> chunks_{};
  std::vector<int> finished_{};
  std::vector<Kept> kept_{};
};

}  // namespace kolo::internal::backend::mpi
