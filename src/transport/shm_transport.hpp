// SPDX-License-Identifier: Apache-2.0
// Control messages through rings in shared memory, between the first rank of a host and each of the
// host's other ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "node/local_group.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Carries the messages within one host. In the tree, the host's first rank is the parent of its
/// other ranks, and the other ranks exchange no messages among themselves. The memory of each of
/// the other ranks holds two rings, one per direction. A send wakes its receiver.
class ShmTransport : public Transport {
 public:
  /// The bytes that each rank's memory must have.
  [[nodiscard]] static std::size_t bytes_needed() { return 2 * sizeof(Ring); }

  /// `local_peers` are all ranks of the host, each with `bytes_needed` bytes of memory. `index` is
  /// the place of this rank among them, and `ranks` lists their ranks, ascending. At most
  /// `max_unsent` bytes wait for any of them.
  ShmTransport(const std::vector<node::LocalPeer>& local_peers, int index,
               const std::vector<int>& ranks, std::size_t max_unsent = max_unsent_bytes);

  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override { return unsent_ == 0; }

 private:
  static constexpr std::uint64_t ring_bytes = 16 << 10;

  /// A ring has one writer and one reader. Both counters count bytes since the start and only grow;
  /// the bytes between them are unread. Each counter has a cache line of its own, so that the two
  /// ranks do not contend for it at every message. A message is a header and its bytes. Both begin
  /// at a multiple of 16, so the end of the ring never divides a header.
  struct Ring {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) std::byte data[ring_bytes];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  // The two rings in the memory of a rank that is not the first: to the first rank, and from it.
  static constexpr std::size_t up = 0;
  static constexpr std::size_t down = 1;

  struct Outgoing {
    std::deque<Message> messages{};
    std::uint64_t sent = 0;   // bytes of the first message in the ring, with its header
    std::size_t waiting = 0;  // bytes of all messages, with their headers
  };
  struct Incoming {
    Message message{};          // the part that has arrived of a divided message
    std::uint64_t missing = 0;  // its missing bytes, with the padding; 0: no message is divided
    std::uint64_t length = 0;
  };
  struct Peer {
    int rank;
    const node::Doorbell* bell;
    Ring* out;
    Ring* in;
    Outgoing outgoing{};
    Incoming incoming{};
  };

  bool flush(Peer& peer);
  bool read(Peer& peer, const Receiver& receive);
  /// Passes on the messages between `at` and `written`. `at` moves past a message before the
  /// receiver gets it, so that the message counts as received even if the receiver throws.
  static void hand_over(Peer& peer, std::uint64_t& at, std::uint64_t written,
                        const Receiver& receive);
  /// Throws BackendError, because the ring is damaged and its messages cannot be told apart.
  [[noreturn]] static void refuse(const Peer& peer);
  static void make_room(Peer& peer, std::uint64_t before, std::uint64_t at);
  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }

  std::vector<Peer> peers_{};  // by rank, ascending
  std::size_t unsent_ = 0;     // messages that do not lie in their ring as a whole
  std::size_t max_unsent_;
};

}  // namespace kolo::internal::transport
