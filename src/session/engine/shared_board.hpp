// SPDX-License-Identifier: Apache-2.0
// The plan board in memory that all ranks see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "negotiation/replay/board.hpp"
#include "node/doorbell.hpp"

namespace kolo::internal::session {

class SharedPlanBoard : public negotiation::PlanBoard {
 public:
  /// A rank's word, in its own part of the shared memory; initially zero. It has a cache line of
  /// its own, so that writes of neighboring data do not slow the other ranks' reads.
  struct alignas(64) Word {
    std::atomic<std::uint64_t> value;
  };
  // An atomic with a lock would not work across processes.
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  /// A rank's word, and the bell that wakes the rank.
  struct Peer {
    Word* word;
    const node::Doorbell* bell;
  };

  /// `peers`: all ranks, whose words and bells outlive the board. `rank`: this one.
  SharedPlanBoard(std::vector<Peer> peers, int rank)
      : peers_(std::move(peers)), rank_(static_cast<std::size_t>(rank)) {}

  void publish(std::uint64_t word, Urgency urgency) override {
    std::atomic<std::uint64_t>& own = peers_[rank_].word->value;
    const std::uint64_t before = own.load(std::memory_order_relaxed);
    // Release, for the acquire in `read`: a reader of the word sees everything that this rank did
    // before. The order is transitive: a rank that reads this word and then publishes its own makes
    // the work of both ranks visible.
    own.store(word, std::memory_order_release);
    if (urgency == Urgency::stop) {
      owes_ring_ = false;
      return ring_others(node::WakeReason::messages);  // each rank has to stop too
    }
    // At least one rank sees that it was the last to pass a position. Every rank stores its word
    // and then reads the others', with this sequentially consistent fence in between. Take the last
    // of the fences with which the ranks pass the position: its rank sees the stores before all
    // others, so it finds every other word beyond the position, and its own was at most there.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    owes_ring_ |= have_others_passed(before, static_cast<int>(rank_), ranks());
  }

  /// A rank that falls asleep meanwhile either sees all words in its last check or is woken: the
  /// bell's fence orders the words that `publish` has read before its read of the listener.
  void wake() override {
    if (std::exchange(owes_ring_, false)) ring_others(node::WakeReason::data);
  }

  [[nodiscard]] std::uint64_t read(int rank) const override {
    return peers_[static_cast<std::size_t>(rank)].word->value.load(std::memory_order_acquire);
  }

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(peers_.size()); }

  void ring_others(node::WakeReason reason) const {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank)
      if (rank != rank_) peers_[rank].bell->ring(reason);
  }

  std::vector<Peer> peers_;
  std::size_t rank_;
  bool owes_ring_ = false;
};

}  // namespace kolo::internal::session
