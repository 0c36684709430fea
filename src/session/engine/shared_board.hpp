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
    // Release, for the acquire in `read`: a reader of the word sees everything that this rank did
    // before. The order is transitive: a rank that reads this word and then publishes its own makes
    // the work of both ranks visible.
    peers_[rank_].word->value.store(word, std::memory_order_release);
    // Ring after the store: the bell's fence orders the store before its read of the listener, so a
    // rank that falls asleep meanwhile either sees the word in its last check or is woken. Progress
    // wakes only ranks that wait for data; a stop wakes every rank, since each has to stop too.
    const auto reason =
        urgency == Urgency::stop ? node::WakeReason::messages : node::WakeReason::data;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank)
      if (rank != rank_) peers_[rank].bell->ring(reason);
  }

  [[nodiscard]] std::uint64_t read(int rank) const override {
    return peers_[static_cast<std::size_t>(rank)].word->value.load(std::memory_order_acquire);
  }

 private:
  std::vector<Peer> peers_;
  std::size_t rank_;
};

}  // namespace kolo::internal::session
