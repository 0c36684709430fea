// The memory through which the ranks of one host execute batches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "node/local_group.hpp"

namespace kolo::internal::backend::shm {

/// How far a rank has come with the pieces of a batch. A value is the batch's order in its upper
/// bits and a number of pieces in its lower ones. Batches of a lane follow each other in ascending
/// order, so a counter never falls, and a rank that has gone on to a later batch counts as done
/// with the earlier.
///
/// Only the rank itself writes a counter, with release: what it has written to its slot, or read
/// out of others' slots, comes before. Others load it with acquire: what they read or overwrite
/// comes after. No other ordering is needed, since every counter stands for itself: nobody infers
/// from one counter what another says. Each has a cache line of its own, so that a write disturbs
/// only those who wait for this counter.
struct Counters {
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> value;
  };
  Counter deposited;  // its own part of a piece lies in its slot
  Counter combined;   // its slice of a piece is reduced
  Counter collected;  // it has read all it needs of a piece
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Batches are executed in lanes. A lane has slots, into each of which a rank puts its part of one
/// piece. All ranks have the same lanes; batches that are under way at once are in different ones.
inline constexpr std::size_t lane_count = 2;
inline constexpr std::size_t slot_count = 4;

/// What a rank has deposited: its part of the piece, which lies in the slot; or, if its tensor lies
/// in the rank's heap, which all ranks of the host map, only where.
struct alignas(64) Deposit {
  bool in_heap = false;
  std::uint64_t input = 0;  // offsets in the heap
  std::uint64_t output = 0;
};

/// Has `Arena::bytes_needed` of memory.
using LocalPeer = node::LocalPeer;

/// Ranks are known by their index on the host. One thread at a time.
class Arena {
 public:
  [[nodiscard]] static std::size_t bytes_needed(std::int64_t slot_bytes);

  /// Batches are cut into pieces of at most `piece_bytes` unless they know better; no piece has
  /// more than `slot_bytes`. Both are the same on all ranks.
  Arena(std::vector<LocalPeer> neighbors, int index, std::int64_t piece_bytes,
        std::int64_t slot_bytes)
      : neighbors_(std::move(neighbors)),
        index_(index),
        piece_bytes_(piece_bytes),
        slot_bytes_(slot_bytes) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] std::int64_t piece_bytes() const { return piece_bytes_; }
  [[nodiscard]] std::int64_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] Counters& counters(int index, std::size_t lane) const {
    return reinterpret_cast<Counters*>(neighbors_[static_cast<std::size_t>(index)].memory)[lane];
  }
  [[nodiscard]] std::byte* slot(int index, std::size_t lane, std::size_t slot) const;
  /// Read once it was counted as deposited.
  [[nodiscard]] Deposit& deposit(int index, std::size_t lane, std::size_t slot) const;
  [[nodiscard]] std::span<std::byte> heap(int index) const {
    return neighbors_[static_cast<std::size_t>(index)].heap;
  }
  void ring(int index) const {
    neighbors_[static_cast<std::size_t>(index)].bell->ring(node::WakeReason::data);
  }

  /// A lane is used by one batch of this rank after the other, in the order of these calls.
  [[nodiscard]] std::uint64_t queue_up(std::size_t lane) { return lanes_[lane].queued++; }
  [[nodiscard]] bool is_next(std::size_t lane, std::uint64_t place) const {
    return lanes_[lane].served == place;
  }
  /// This rank is done with the batch; the others, by their index, are when they have collected as
  /// much as `value` says.
  void leave(std::size_t lane, std::vector<int> others, std::uint64_t value);
  /// True once nobody reads any more what this rank's last batch left in the lane.
  [[nodiscard]] bool is_free(std::size_t lane) const;

 private:
  struct Lane {
    std::uint64_t queued = 0;
    std::uint64_t served = 0;
    std::vector<int> last_ranks{};
    std::uint64_t last_value = 0;
  };

  std::vector<LocalPeer> neighbors_;
  int index_;
  std::int64_t piece_bytes_;
  std::int64_t slot_bytes_;
  std::array<Lane, lane_count> lanes_{};
};

}  // namespace kolo::internal::backend::shm
