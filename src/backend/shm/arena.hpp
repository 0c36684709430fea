// SPDX-License-Identifier: Apache-2.0
// The memory through which the ranks of one host execute batches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/shm/write_fence.hpp"
#include "node/local_group.hpp"

namespace kolo::internal::backend::shm {

/// A point in the work of a lane: a batch, and a count of that batch's pieces.
struct Position {
  std::uint64_t order = 0;  // the order of the batch
  std::uint64_t pieces = 0;
};

/// A rank's progress with the pieces of a batch. The batches of a lane have ascending orders, so a
/// counter never falls, and a rank in a later batch counts as done with earlier ones.
///
/// Only the rank itself writes a counter, with release: its writes to its own slot and its reads
/// from other slots precede the store. Other ranks load it with acquire: their reads and writes of
/// the slots follow. No other order is needed, since no rank infers the value of one counter from
/// another. Each counter has a cache line of its own, so that a write disturbs only the ranks that
/// wait for it.
///
/// The two words of a counter are written one after the other, `pieces` first, and read in reverse.
/// So a reader that sees the order of a batch sees `pieces` of this batch or of a later one. In the
/// latter case the rank is done with this batch, so `has_reached` is never true too early.
struct Counters {
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> order;
    std::atomic<std::uint64_t> pieces;

    void publish(const Position& position) {
      pieces.store(position.pieces, std::memory_order_release);
      // Relaxed: only this rank writes it.
      if (order.load(std::memory_order_relaxed) != position.order)
        order.store(position.order, std::memory_order_release);
    }
    [[nodiscard]] bool has_reached(const Position& position) const {
      const std::uint64_t current = order.load(std::memory_order_acquire);
      return current > position.order ||
             (current == position.order &&
              pieces.load(std::memory_order_acquire) >= position.pieces);
    }
  };
  Counter deposited;  // its part of a piece lies in its slot or heap
  Counter prepared;   // the same, for a batch that it has not begun; `order` is the mark
  Counter combined;   // its slice of a piece is reduced
  Counter collected;  // it has read all that it needs of a piece
  Counter reduced;    // in levels: its slice is reduced within its group
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Batches are executed in lanes. A lane has slots; a rank puts its part of one piece into each.
/// All ranks use the same lanes, and batches that run at the same time are in different lanes.
inline constexpr std::size_t lane_count = 2;
inline constexpr std::size_t slot_count = 4;
/// The maximum lead of a rank over another, in pieces, if those pieces use no slots.
inline constexpr std::size_t max_window = 32;
static_assert(max_window % slot_count == 0);

/// The place of the part of a piece that a rank has deposited: its slot; or its heap, which all
/// ranks of the host map, if the tensor lies there. In the latter case the others also write
/// results there.
struct alignas(64) Deposit {
  bool in_heap = false;
  std::uint64_t input = 0;  // offsets in the heap
  std::uint64_t output = 0;
};

/// `memory` has at least `Arena::bytes_needed` bytes.
using LocalPeer = node::LocalPeer;

/// Ranks are identified by their index on the host. Used by one thread at a time.
class Arena {
 public:
  [[nodiscard]] static std::size_t bytes_needed(std::int64_t slot_bytes);

  /// Batches are divided into pieces of at most `piece_bytes`, unless a collective chooses another
  /// size; no piece is larger than `slot_bytes`. `cache_share` is that of LocalGroup. All three are
  /// the same on all ranks.
  Arena(std::vector<LocalPeer> local_peers, int index, std::int64_t piece_bytes,
        std::int64_t slot_bytes, std::int64_t cache_share)
      : local_peers_(std::move(local_peers)),
        index_(index),
        piece_bytes_(piece_bytes),
        slot_bytes_(slot_bytes),
        cache_share_(cache_share),
        fence_(gates(), index) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] std::int64_t piece_bytes() const { return piece_bytes_; }
  [[nodiscard]] std::int64_t slot_bytes() const { return slot_bytes_; }
  /// The size of pieces in allreduces on this host.
  [[nodiscard]] std::int64_t allreduce_piece_bytes() const;
  [[nodiscard]] Counters& counters(int index, std::size_t lane) const {
    return reinterpret_cast<Counters*>(memory(index) + sizeof(WriteGate))[lane];
  }
  [[nodiscard]] std::byte* slot(int index, std::size_t lane, std::size_t slot) const;
  /// The deposit of the piece with this number in the window. Valid once the `deposited` or
  /// `prepared` counter of that rank includes the piece.
  [[nodiscard]] Deposit& deposit(int index, std::size_t lane, std::size_t number) const;
  /// The fence for this rank's writes to the heaps of others.
  [[nodiscard]] WriteFence& fence() { return fence_; }
  [[nodiscard]] std::span<std::byte> heap(int index) const {
    return local_peers_[static_cast<std::size_t>(index)].heap;
  }
  void ring(int index) const {
    local_peers_[static_cast<std::size_t>(index)].bell->ring(node::WakeReason::data);
  }

  /// The batches of this rank use a lane one after another, in the order of these calls.
  [[nodiscard]] std::uint64_t queue_up(std::size_t lane) { return lanes_[lane].queued++; }
  [[nodiscard]] bool is_next(std::size_t lane, std::uint64_t place) const {
    return lanes_[lane].served == place;
  }
  /// Removes the last place in the queue, whose batch will not run.
  void give_up_place(std::size_t lane) { --lanes_[lane].queued; }
  /// True if no batch of this rank is in the lane.
  [[nodiscard]] bool is_idle(std::size_t lane) const {
    return lanes_[lane].served == lanes_[lane].queued;
  }
  /// This rank is done with the batch. The other ranks, given by index, are done once their
  /// `collected` counters have reached `position`.
  void leave(std::size_t lane, std::vector<int> others, const Position& position);
  /// True once no rank reads the slots of this rank's last batch in the lane any more.
  [[nodiscard]] bool is_free(std::size_t lane) const;

 private:
  struct Lane {
    std::uint64_t queued = 0;
    std::uint64_t served = 0;
    std::vector<int> last_ranks{};
    Position last_position{};
  };

  /// A rank's memory: its gate, the counters and deposits of all lanes, then the slots.
  [[nodiscard]] std::byte* memory(int index) const {
    return local_peers_[static_cast<std::size_t>(index)].memory;
  }
  [[nodiscard]] std::vector<WriteFence::Peer> gates() const;

  std::vector<LocalPeer> local_peers_;
  int index_;
  std::int64_t piece_bytes_;
  std::int64_t slot_bytes_;
  std::int64_t cache_share_;
  WriteFence fence_;
  std::array<Lane, lane_count> lanes_{};
};

/// Call this when this rank has read a part of another rank's slot that no other rank will read
/// after it. Writes each cache line back unchanged, so that only this core has the line. Otherwise
/// the owner of the slot would have to invalidate this core's copy before it writes there again,
/// which takes four to six times as long.
inline void take_over(std::byte* part, std::int64_t bytes) {
  constexpr std::uintptr_t line = 64;
  const auto first = reinterpret_cast<std::uintptr_t>(part);
  // The first byte of the part, then the first byte of each further line: none outside of the part.
  for (std::uintptr_t at = first; at < first + static_cast<std::uintptr_t>(bytes);
       at = (at / line + 1) * line) {
    volatile std::byte& byte = part[at - first];
    byte = byte;
  }
}

}  // namespace kolo::internal::backend::shm
