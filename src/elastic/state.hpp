// SPDX-License-Identifier: Apache-2.0
// The data behind a State: its parts, and their last commit on this rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kolo/elastic.hpp"

namespace kolo::elastic {

struct State::Data {
  /// The collective calls; all ranks must make the same one.
  enum class Call : std::uint8_t { commit, check_membership, end_of_training, sync };

  /// The numbers that `sync` replaces by their maximum over the ranks.
  using Numbers = std::array<std::int64_t, 4>;

  struct Entry {
    std::string name;
    std::unique_ptr<StateHandler> handler;
    StateDict state{};     // from the last commit
    StateDict per_rank{};  // from the last commit, if `has_per_rank`
    bool has_per_rank = false;
  };

  std::vector<Entry> entries{};
  std::vector<std::function<void()>> resets{};
  bool runs = false;          // kolo::elastic::run is active, so no parts can be added
  std::uint64_t commits = 0;  // the number of the last commit; 0: there is none

  /// Collective. True if ranks are to join or leave. Throws Mismatch unless all ranks pass the same
  /// `call`.
  [[nodiscard]] bool agree(Call call) const;
  /// Collective. As `agree`, for `sync`: a rank in another call gets Mismatch too, because all
  /// calls begin with the same operation.
  [[nodiscard]] Numbers agree_to_sync(const Numbers& own) const;
  /// Copies the parts into a commit with this number. A failure in a collective call or on the GPU
  /// leaves the last commit; a later failure leaves no commit.
  void copy(std::uint64_t number);
  /// Collective. Gives all ranks the commit of rank `root`, whose number is `number`. With
  /// `keeps_per_rank`, each rank keeps its own per-rank states, because they belong to this commit.
  void distribute(int root, std::uint64_t number, bool keeps_per_rank);
  /// Loads the commit into the program's objects.
  void load();

 private:
  struct Meeting {
    bool changes;
    Numbers numbers;
  };
  [[nodiscard]] Meeting meet(Call call, const Numbers& own) const;
};

}  // namespace kolo::elastic
