// SPDX-License-Identifier: Apache-2.0
// The parts of a State, and their last commit on this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kolo/elastic.hpp"

namespace kolo::elastic {

struct State::Data {
  /// The collective calls; all ranks must make the same one.
  enum class Call : std::uint8_t { commit, check_membership, end_of_training };

  struct Entry {
    std::string name;
    std::unique_ptr<StateHandler> handler;
    StateDict state{};     // the last commit's
    StateDict per_rank{};  // the last commit's, if `has_per_rank`
    bool has_per_rank = false;
  };

  std::vector<Entry> entries{};
  std::vector<std::function<void()>> resets{};
  bool runs = false;          // within kolo::elastic::run, where parts can no longer be added
  std::uint64_t commits = 0;  // the number of the commit; 0: there is none

  /// Collective. Whether ranks are to join or leave. Throws InvalidArgument unless all ranks call
  /// the same.
  [[nodiscard]] bool agree(Call call) const;
  /// Copies the parts, and gives the copy this number. If that fails, the commit is still the last
  /// one, or none.
  void copy(std::uint64_t number);
  /// Collective. Gives all ranks the commit of rank `root`, which has that number. With
  /// `keeps_per_rank`, each rank keeps its per-rank states, which belong to this commit.
  void distribute(int root, std::uint64_t number, bool keeps_per_rank);
  /// Collective. Throws Mismatch if the ranks have different parts.
  void require_same_parts() const;
  void load();
};

}  // namespace kolo::elastic
