// SPDX-License-Identifier: Apache-2.0
// Control messages between the ranks of one host, through rings in shared memory: between the first
// of them and each of the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "node/local_group.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// The first rank of a host is the parent of all others of it in the tree, so no two others have
/// anything to tell each other. Each of these has two rings in its memory, one in either direction.
/// A send wakes its receiver.
class ShmTransport : public Transport {
 public:
  /// What each rank's memory must have room for.
  [[nodiscard]] static std::size_t bytes_needed() { return 2 * sizeof(Ring); }

  /// `neighbors` have `bytes_needed` of memory each, `index` is this one's place among them, and
  /// `ranks` are theirs, ascending.
  /// No more than `max_unsent` bytes wait for any of them.
  ShmTransport(const std::vector<node::LocalPeer>& neighbors, int index,
               const std::vector<int>& ranks, std::size_t max_unsent = max_unsent_bytes);

  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override { return unsent_ == 0; }

 private:
  static constexpr std::uint64_t ring_bytes = 16 << 10;

  /// One writer, one reader. The counts of bytes only grow; what lies between them is unread. Each
  /// has a cache line of its own, or the two ranks would take it from each other at every message.
  /// A message is a header and its bytes, each beginning at a multiple of 16, so that a header is
  /// never divided by the end of the ring.
  struct Ring {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) std::byte data[ring_bytes];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  // In the memory of a rank that is not the first: to the first, and from it.
  static constexpr std::size_t up = 0;
  static constexpr std::size_t down = 1;

  struct Outgoing {
    std::deque<Message> messages{};
    std::uint64_t sent = 0;   // bytes of the first, with its header
    std::size_t waiting = 0;  // bytes of all of them, with their headers
  };
  struct Incoming {
    Message message{};          // what has come of one that is not in the ring as a whole
    std::uint64_t missing = 0;  // bytes of it, with what it is padded by
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
  /// What was written from `at` on. `at` goes ahead of the messages: what a receiver was given has
  /// come, even if it throws.
  static void hand_over(Peer& peer, std::uint64_t& at, std::uint64_t written,
                        const Receiver& receive);
  /// The ring is damaged: its messages cannot be separated. Throws BackendError.
  [[noreturn]] static void refuse(const Peer& peer);
  static void make_room(Peer& peer, std::uint64_t before, std::uint64_t at);
  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }

  std::vector<Peer> peers_{};  // by rank, ascending
  std::size_t unsent_ = 0;     // messages that are not in their ring as a whole
  std::size_t max_unsent_;
};

}  // namespace kolo::internal::transport
