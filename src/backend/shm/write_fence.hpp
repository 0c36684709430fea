// SPDX-License-Identifier: Apache-2.0
// Keeps other ranks from writing to the tensors of a rank whose session has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "node/other_process.hpp"

namespace kolo::internal::backend::shm {

/// Lies in each rank's memory and is initially zero.
struct WriteGate {
  alignas(64) std::atomic<std::uint64_t> sections;  // odd while this rank is in a section
  alignas(64) std::atomic<std::uint32_t> closed;    // not 0: this rank's memory must not be written
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A rank writes to the memory of others only in sections. A rank whose operations fail gives its
/// tensors back to the program. Before that, it closes its gate and waits until no rank is in a
/// section that began earlier.
///
/// A writer stores that it is in a section, then reads the gates. A closing rank stores that its
/// gate is closed, then reads whether others are in sections. All four accesses are sequentially
/// consistent, so the writer sees the closed gate, or the closing rank sees the section.
///
/// Ranks are identified by their index on the host. One thread at a time.
class WriteFence {
 public:
  struct Peer {
    WriteGate* gate;
    const node::OtherProcess* process;  // null for this process
  };

  WriteFence(std::vector<Peer> peers, int index)
      : peers_(std::move(peers)), awaited_(peers_.size()), index_(index) {}

  /// While a section lives, this rank may write to the memory of ranks whose gates it found open.
  class Section {
   public:
    explicit Section(WriteGate& own) : own_(own) { advance(std::memory_order_seq_cst); }
    ~Section() { advance(std::memory_order_release); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    void advance(std::memory_order order) {
      // Relaxed: only this rank writes it.
      own_.sections.store(own_.sections.load(std::memory_order_relaxed) + 1, order);
    }

    WriteGate& own_;
  };

  [[nodiscard]] Section enter() { return Section(*peer(index_).gate); }
  /// Call it within a section.
  [[nodiscard]] bool is_closed(int index) const {
    return peer(index).gate->closed.load(std::memory_order_seq_cst) != 0;
  }

  /// From now on no rank begins to write to this rank's memory. Returns when no rank writes to it
  /// any more. A section takes microseconds. A process that stays in one for `patience` and is
  /// stopped is killed, since nothing else keeps it from writing when it continues. Other processes
  /// get the same time again. Time in which this thread does not run does not count.
  void close(std::chrono::nanoseconds patience) noexcept;

 private:
  [[nodiscard]] const Peer& peer(int index) const {
    return peers_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] bool any_writes() const noexcept;
  [[nodiscard]] bool writes(std::size_t index) const noexcept;
  template <typename Visit>
  void each_writer(Visit visit) const noexcept;

  std::vector<Peer> peers_;
  std::vector<std::uint64_t> awaited_;  // for each peer: its section when the gate was closed
  int index_;
};

}  // namespace kolo::internal::backend::shm
