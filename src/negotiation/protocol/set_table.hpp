// SPDX-License-Identifier: Apache-2.0
// The process sets of one rank, as the log has added and removed them.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "negotiation/protocol/tally.hpp"
#include "negotiation/protocol/tree.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {

/// The reason why no operation of a set can complete any more: the first departure or stall in the
/// log that concerns the set.
using BreakCause = std::variant<Departure, StallEntry>;

struct NegotiatedSet {
  RankSet members;
  Tally tally;  // counts the members at or below this rank
  std::optional<BreakCause> broken{};
  int unfinished = 0;  // batches that this rank takes part in and has not executed yet
};

/// All process sets, and the ranks that have joined. A joined rank has joined in all its sets. Only
/// entries of the log and joins change the table.
class SetTable {
 public:
  /// Initially the table contains the world only.
  explicit SetTable(const TreePosition& place) : below_(RankSet::of(place.rank)) {
    for (const Child& child : place.children) below_.insert(child.ranks);
    add(world_set, RankSet::range(0, place.ranks - 1));
  }

  /// Null if the set was removed. Throws ProtocolError for a set that was never added.
  NegotiatedSet* find(SetId id) {
    const auto found = sets_.find(id);
    if (found != sets_.end()) return &found->second;
    if (id >= next_) throw ProtocolError("process set " + std::to_string(id) + " is unknown");
    return nullptr;
  }
  /// Throws ProtocolError also for a set that was removed.
  NegotiatedSet& at(SetId id) {
    NegotiatedSet* const found = find(id);
    if (found == nullptr) throw ProtocolError("process set " + std::to_string(id) + " was removed");
    return *found;
  }
  /// Null also if the set is broken: a rank below may have sent its report before it learned that.
  NegotiatedSet* find_whole(SetId id) {
    NegotiatedSet* found = find(id);
    return found != nullptr && !found->broken ? found : nullptr;
  }
  [[nodiscard]] NegotiatedSet& world() { return sets_.at(world_set); }
  [[nodiscard]] const NegotiatedSet& world() const { return sets_.at(world_set); }
  /// Iteration over pairs of id and set, ascending, so that the world comes first.
  [[nodiscard]] auto begin() { return sets_.begin(); }
  [[nodiscard]] auto end() { return sets_.end(); }
  [[nodiscard]] bool any_pending() const {
    return std::ranges::any_of(sets_, [](const auto& one) { return !one.second.tally.empty(); });
  }
  [[nodiscard]] std::vector<Key> pending() const {
    std::vector<Key> keys;
    for (const auto& [id, set] : sets_) set.tally.add_keys(keys);
    return keys;
  }

  /// The members of a set; none if there is no such set.
  [[nodiscard]] RankSet members_of(SetId id) const {
    const auto set = sets_.find(id);
    return set == sets_.end() ? RankSet() : set->second.members;
  }
  [[nodiscard]] RankSet members_of_removed(SetId id) const {
    const auto removed = removed_.find(id);
    return removed == removed_.end() ? RankSet() : removed->second;
  }
  /// The id of the set with these members, or the next free id. The world does not count, since an
  /// added set with the same members can be removed and the world cannot.
  [[nodiscard]] SetId id_for(const RankSet& members) const {
    const auto same = std::find_if(std::next(sets_.begin()), sets_.end(),
                                   [&](const auto& one) { return one.second.members == members; });
    return same != sets_.end() ? same->first : next_;
  }

  /// Does nothing if the set exists. Throws ProtocolError if `id` is new but not the next one.
  void add(SetId id, const RankSet& members) {
    if (sets_.contains(id)) return;
    if (id != next_) throw ProtocolError("process sets came out of turn");
    ++next_;
    NegotiatedSet& set =
        sets_.emplace(id, NegotiatedSet{members, Tally(members.common(below_))}).first->second;
    // No key of a new set is pending yet, so the joins complete nothing.
    for (const int rank : joined_) static_cast<void>(set.tally.join(rank));
  }
  /// False if the set was removed before.
  bool remove(SetId id) {
    const auto set = sets_.find(id);
    if (set == sets_.end()) return false;
    removed_.emplace(id, std::move(set->second.members));
    sets_.erase(set);
    return true;
  }

  /// From now on the rank counts as having submitted every operation. Returns the operations that
  /// this completes.
  [[nodiscard]] std::vector<Readiness> join(int rank) {
    joined_.push_back(rank);
    std::vector<Readiness> complete;
    for (auto& [id, set] : sets_)
      for (Readiness& one : set.tally.join(rank)) complete.push_back(std::move(one));
    return complete;
  }
  /// No rank counts as joined any more.
  void release_joined() {
    joined_.clear();
    for (auto& [id, set] : sets_) set.tally.release_joined();
  }
  /// The ranks at or below this one that have joined, in the order of their reports.
  [[nodiscard]] const std::vector<int>& joined() const { return joined_; }

 private:
  RankSet below_;  // this rank and the ranks below it
  std::map<SetId, NegotiatedSet> sets_{};
  std::map<SetId, RankSet> removed_{};  // members, for error messages; ids are never reused
  SetId next_ = world_set;
  std::vector<int> joined_{};
};

}  // namespace kolo::internal::negotiation
