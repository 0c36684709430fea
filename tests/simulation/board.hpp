// SPDX-License-Identifier: Apache-2.0
// The board with the words of all ranks, and the ranks that are woken when a word changes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "negotiation/replay/board.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {

class World::Board : public negotiation::PlanBoard {
 public:
  Board(std::vector<std::uint64_t>& words, std::size_t rank, std::function<void(bool)> wake)
      : words_(words), rank_(rank), wake_(std::move(wake)) {}

  void publish(std::uint64_t word, Urgency urgency) override {
    const std::uint64_t before = std::exchange(words_[rank_], word);
    const bool stops = urgency == Urgency::stop;
    const int ranks = static_cast<int>(words_.size());
    if (stops || have_others_passed(before, static_cast<int>(rank_), ranks)) wake_(stops);
  }
  [[nodiscard]] std::uint64_t read(int rank) const override {
    return words_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::uint64_t>& words_;
  std::size_t rank_;
  std::function<void(bool)> wake_;
};

}  // namespace kolo::internal::simulation
