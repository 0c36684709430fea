// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/arena.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace kolo::internal::backend::shm {
namespace {

constexpr std::size_t counters_bytes = lane_count * sizeof(Counters);
constexpr std::size_t deposits_bytes = lane_count * max_window * sizeof(Deposit);
constexpr std::size_t deposits_at = sizeof(WriteGate) + counters_bytes;
constexpr std::size_t slots_at = deposits_at + deposits_bytes;

/// Slots begin at cache lines.
std::size_t stride(std::int64_t slot_bytes) {
  return (static_cast<std::size_t>(slot_bytes) + 63) / 64 * 64;
}

}  // namespace

std::size_t Arena::bytes_needed(std::int64_t slot_bytes) {
  return slots_at + lane_count * slot_count * stride(slot_bytes);
}

std::vector<WriteFence::Peer> Arena::gates() const {
  std::vector<WriteFence::Peer> gates;
  for (const LocalPeer& local_peer : local_peers_)
    gates.push_back({reinterpret_cast<WriteGate*>(local_peer.memory), local_peer.process});
  return gates;
}

std::byte* Arena::slot(int index, std::size_t lane, std::size_t slot) const {
  return memory(index) + slots_at + (lane * slot_count + slot) * stride(slot_bytes_);
}

Deposit& Arena::deposit(int index, std::size_t lane, std::size_t number) const {
  return reinterpret_cast<Deposit*>(memory(index) + deposits_at)[lane * max_window + number];
}

/// With longer pieces ranks wait less often for each other, but their slots spill into the cache
/// that all cores share. Measured: slots that fill a rank's share twice are the fastest.
std::int64_t Arena::allreduce_piece_bytes() const {
  constexpr std::int64_t min_bytes = std::int64_t{32} << 10;
  const auto fitting = std::bit_floor(2 * static_cast<std::uint64_t>(cache_share_) / slot_count);
  return std::min(std::max(static_cast<std::int64_t>(fitting), min_bytes), piece_bytes_);
}

void Arena::leave(std::size_t lane, std::vector<int> others, const Position& position) {
  ++lanes_[lane].served;
  // A batch without pieces publishes nothing, so the readers of the previous batch remain.
  if (others.empty()) return;
  lanes_[lane].last_ranks = std::move(others);
  lanes_[lane].last_position = position;
}

/// Acquire: the other ranks' reads of the slots precede this rank's next writes to them.
bool Arena::is_free(std::size_t lane) const {
  return std::ranges::all_of(lanes_[lane].last_ranks, [&](int other) {
    return counters(other, lane).collected.has_reached(lanes_[lane].last_position);
  });
}

}  // namespace kolo::internal::backend::shm
