// SPDX-License-Identifier: Apache-2.0
#include "transport/shm_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::transport {
namespace {

constexpr std::uint64_t header_bytes = 16;  // the length of the message, padded
// A longer message means that the ring is damaged. No control message comes near this bound, and
// adding the header to it cannot overflow.
constexpr std::uint64_t max_message_bytes = std::uint64_t{1} << 31;

}  // namespace

ShmTransport::ShmTransport(const std::vector<node::LocalPeer>& local_peers, int index,
                           const std::vector<int>& ranks, std::size_t max_unsent)
    : max_unsent_(max_unsent) {
  const auto rings = [&](std::size_t other) {
    return reinterpret_cast<Ring*>(local_peers[other].memory);
  };
  const auto own = static_cast<std::size_t>(index);
  if (own != 0) {
    peers_.push_back({ranks[0], local_peers[0].bell, &rings(own)[up], &rings(own)[down]});
    return;
  }
  for (std::size_t other = 1; other < local_peers.size(); ++other)
    peers_.push_back(
        {ranks[other], local_peers[other].bell, &rings(other)[down], &rings(other)[up]});
}

void ShmTransport::send(int peer, Message message) {
  const auto found = std::ranges::lower_bound(peers_, peer, {}, &Peer::rank);
  if (found == peers_.end() || found->rank != peer)
    throw BackendError("there is no ring to rank " + std::to_string(peer) +
                       ": only the first rank of a host has some to all others of it");
  Peer& to = *found;
  to.outgoing.waiting += header_bytes + message.size();
  to.outgoing.messages.push_back(std::move(message));
  ++unsent_;
  flush(to);
  if (to.outgoing.waiting > max_unsent_) refuse_unsent(to.rank, to.outgoing.waiting);
}

bool ShmTransport::poll(const Receiver& receive) {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (unsent_ > 0) moved |= flush(peer);
    moved |= read(peer, receive);
  }
  return moved;
}

bool ShmTransport::flush(Peer& peer) {
  Outgoing& outgoing = peer.outgoing;
  if (outgoing.messages.empty()) return false;
  Ring& ring = *peer.out;
  // Relaxed: only this rank writes the counter.
  std::uint64_t written = ring.written.load(std::memory_order_relaxed);
  // Acquire: the reader has copied the bytes out before this rank overwrites them.
  const std::uint64_t unread = written - ring.read.load(std::memory_order_acquire);
  if (unread > ring_bytes || unread % 16 != 0 || written % 16 != 0) refuse(peer);
  std::uint64_t room = ring_bytes - unread;
  const std::uint64_t before = written;
  // The room is a multiple of 16, so a padded write never exceeds it.
  const auto put = [&](const std::byte* from, std::uint64_t bytes) {
    const std::uint64_t place = written % ring_bytes;
    const std::uint64_t first = std::min(bytes, ring_bytes - place);
    std::memcpy(ring.data + place, from, first);
    if (bytes > first) std::memcpy(ring.data, from + first, bytes - first);
    written += padded(bytes);
    room -= padded(bytes);
    outgoing.sent += bytes;
  };
  while (!outgoing.messages.empty() && room > 0) {
    const Message& message = outgoing.messages.front();
    if (outgoing.sent == 0) {
      std::array<std::byte, header_bytes> header{};
      const std::uint64_t length = message.size();
      std::memcpy(header.data(), &length, sizeof length);
      put(header.data(), header_bytes);
    }
    const std::uint64_t done = outgoing.sent - header_bytes;
    const std::uint64_t bytes = std::min(message.size() - done, room);
    if (bytes > 0) put(message.data() + done, bytes);
    if (outgoing.sent < header_bytes + message.size()) break;
    outgoing.waiting -= outgoing.sent;
    outgoing.messages.pop_front();
    outgoing.sent = 0;
    --unsent_;
  }
  if (written == before) return false;
  // Release: the bytes are written before the counter covers them.
  ring.written.store(written, std::memory_order_release);
  peer.bell->ring();
  return true;
}

bool ShmTransport::read(Peer& peer, const Receiver& receive) {
  // Relaxed: only this rank writes `read`. Acquire: this rank reads the bytes after the counter
  // `written` that covers them.
  const std::uint64_t before = peer.in->read.load(std::memory_order_relaxed);
  const std::uint64_t written = peer.in->written.load(std::memory_order_acquire);
  if (before == written) return false;
  if (written - before > ring_bytes || written % 16 != 0 || before % 16 != 0) refuse(peer);
  std::uint64_t at = before;
  try {
    hand_over(peer, at, written, receive);
  } catch (...) {
    make_room(peer, before, at);
    throw;
  }
  make_room(peer, before, at);
  return true;
}

void ShmTransport::hand_over(Peer& peer, std::uint64_t& at, std::uint64_t written,
                             const Receiver& receive) {
  const Ring& ring = *peer.in;
  Incoming& incoming = peer.incoming;
  while (at != written) {
    const std::byte* const data = ring.data + at % ring_bytes;
    const std::uint64_t contiguous = std::min(written - at, ring_bytes - at % ring_bytes);
    if (incoming.missing == 0) {
      std::memcpy(&incoming.length, data, sizeof incoming.length);
      if (incoming.length > max_message_bytes) refuse(peer);
      const std::uint64_t whole = header_bytes + padded(incoming.length);
      if (contiguous >= whole) {
        at += whole;
        receive(peer.rank, std::span(data + header_bytes, incoming.length));
        continue;
      }
      incoming.message.clear();
      incoming.missing = padded(incoming.length);
      at += header_bytes;
    } else {
      const std::uint64_t bytes = std::min(contiguous, incoming.missing);
      incoming.message.insert(incoming.message.end(), data, data + bytes);
      incoming.missing -= bytes;
      at += bytes;
    }
    if (incoming.missing > 0) continue;
    incoming.message.resize(incoming.length);
    receive(peer.rank, incoming.message);
  }
}

void ShmTransport::refuse(const Peer& peer) {
  throw BackendError("the shared memory between this rank and rank " + std::to_string(peer.rank) +
                     " is damaged: what stands there is no message");
}

void ShmTransport::make_room(Peer& peer, std::uint64_t before, std::uint64_t at) {
  Ring& ring = *peer.in;
  // Release: the bytes were copied out before the writer may overwrite them.
  ring.read.store(at, std::memory_order_release);
  // A writer that found the ring full sleeps until there is room, and only this rank can wake it.
  // The writer stores `written` and then loads `read`; this rank stores `read` and then loads
  // `written`. The fence orders each store before the load: either the writer sees the room, or
  // this rank sees that the ring was full and rings.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (ring.written.load(std::memory_order_relaxed) - before == ring_bytes) peer.bell->ring();
}

}  // namespace kolo::internal::transport
