// SPDX-License-Identifier: Apache-2.0
// Finds deadlocks: starts with all ranks that wait, and removes ranks that may continue until no
// more can be removed. The remaining ranks wait for each other.
#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "negotiation/stall/explain_stall.hpp"

namespace kolo::internal::negotiation {
namespace {

class Finder {
 public:
  Finder(const Statuses& statuses, const MembersOf& members_of)
      : statuses_(statuses), members_of_(members_of) {
    for (const auto& [rank, status] : statuses_) {
      const RankSet self = RankSet::of(rank);
      if (status.blocked && status.pending > 0 && !status.silent() && !status.ended)
        waiting_.insert(self);
      if (status.pending > static_cast<int>(status.operations.size())) partly_known_.insert(self);
      for (const WaitingOperation& operation : status.operations) {
        if (operation.type == OperationType::join) joined_.insert(self);
        Asked& asked = asked_[operation.key];
        asked.type = operation.type;
        asked.by.insert(self);
        asked.waited = std::max(asked.waited, operation.waited);
      }
    }
  }

  std::optional<Blockade> find() {
    const RankSet world = members_of_(world_set);
    // If all ranks wait, no rank is left to release another, even if operations are not listed.
    if (waiting_ != world)
      while (release_one()) {
      }
    if (waiting_.count() < 2) return std::nullopt;
    Blockade blockade{waiting_, {}};
    for (const auto& [key, asked] : asked_) {
      if (asked.by.common(waiting_).empty()) continue;
      RankSet missing = missing_of(key, asked);
      if (!missing.empty())
        blockade.operations.push_back(
            {{Lag{key, asked.type, asked.by, asked.waited}}, std::move(missing)});
    }
    if (blockade.operations.empty()) return std::nullopt;
    std::ranges::sort(blockade.operations, {}, [](const StalledGroup& late) {
      const Lag& lag = late.lags.front();
      return std::tuple(lag.submitted.ranges().front().first, lag.key.name, lag.key.number);
    });
    return blockade;
  }

 private:
  struct Asked {
    OperationType type = OperationType::barrier;
    RankSet by{};
    std::chrono::milliseconds waited{};
  };

  [[nodiscard]] RankSet missing_of(const Key& key, const Asked& asked) const {
    RankSet missing = members_of_(key.set).without(asked.by);
    return asked.type == OperationType::join ? missing : missing.without(joined_);
  }

  /// True if the operation may complete although the waiting ranks submit nothing more. A rank
  /// whose operations are only partly known may have submitted it already.
  [[nodiscard]] bool may_complete(const Key& key) const {
    const RankSet needed = missing_of(key, asked_.at(key)).common(waiting_);
    return needed.without(partly_known_).empty();
  }

  /// Removes one rank that may continue from the waiting ranks. False if there is none.
  bool release_one() {
    for (const int rank : waiting_.to_vector()) {
      const RankStatus& status = statuses_.at(rank);
      if (!partly_known_.contains(rank) &&
          std::ranges::none_of(status.operations, [&](const WaitingOperation& operation) {
            return may_complete(operation.key);
          }))
        continue;
      waiting_ = waiting_.without(RankSet::of(rank));
      return true;
    }
    return false;
  }

  const Statuses& statuses_;
  const MembersOf& members_of_;
  RankSet waiting_{};
  RankSet joined_{};
  RankSet partly_known_{};  // ranks whose status does not list all pending operations
  std::unordered_map<Key, Asked, KeyHash> asked_{};
};

}  // namespace

std::optional<Blockade> find_deadlock(const Statuses& statuses, const MembersOf& members_of) {
  return Finder(statuses, members_of).find();
}

}  // namespace kolo::internal::negotiation
