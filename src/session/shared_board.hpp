// The board on which plans are followed, in memory that all ranks see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "negotiation/board.hpp"
#include "node/doorbell.hpp"

namespace kolo::session {

class SharedBoard : public negotiation::Board {
 public:
  /// In the rank's own memory; zero at first.
  struct alignas(64) Word {
    std::atomic<std::uint64_t> value;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  struct Place {
    Word* word;
    const node::Doorbell* bell;
  };

  /// The places of all ranks; `rank` is this one. They outlive the board.
  SharedBoard(std::vector<Place> places, int rank)
      : places_(std::move(places)), rank_(static_cast<std::size_t>(rank)) {}

  void publish(std::uint64_t word, Urgency urgency) override {
    places_[rank_].word->value.store(word, std::memory_order_release);
    const auto concern = urgency == Urgency::stop ? node::Concern::messages : node::Concern::data;
    for (std::size_t rank = 0; rank < places_.size(); ++rank)
      if (rank != rank_) places_[rank].bell->ring(concern);
  }

  [[nodiscard]] std::uint64_t read(int rank) const override {
    return places_[static_cast<std::size_t>(rank)].word->value.load(std::memory_order_acquire);
  }

 private:
  std::vector<Place> places_;
  std::size_t rank_;
};

}  // namespace kolo::session
