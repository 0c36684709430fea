// SPDX-License-Identifier: Apache-2.0
// The process sets of one rank, as the log has added and removed them.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "negotiation/protocol/tally.hpp"
#include "negotiation/protocol/tree.hpp"

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
  explicit SetTable(const TreePosition& place);

  /// Null if the set was removed. Throws ProtocolError for a set that was never added.
  NegotiatedSet* find(SetId id);
  /// Throws ProtocolError also for a set that was removed.
  NegotiatedSet& at(SetId id);
  /// Null also if the set is broken: a rank below may have sent its report before it learned that.
  NegotiatedSet* find_whole(SetId id);
  [[nodiscard]] NegotiatedSet& world() { return sets_.at(world_set); }
  [[nodiscard]] const NegotiatedSet& world() const { return sets_.at(world_set); }
  /// Iteration over pairs of id and set, ascending, so that the world comes first.
  [[nodiscard]] auto begin() { return sets_.begin(); }
  [[nodiscard]] auto end() { return sets_.end(); }
  [[nodiscard]] bool any_pending() const {
    return std::ranges::any_of(sets_, [](const auto& one) { return !one.second.tally.empty(); });
  }

  /// The members of a set; none if there is no such set.
  [[nodiscard]] RankSet members_of(SetId id) const;
  [[nodiscard]] RankSet members_of_removed(SetId id) const;
  /// The id of the set with these members, or the next free id. The world does not count, since an
  /// added set with the same members can be removed and the world cannot.
  [[nodiscard]] SetId id_for(const RankSet& members) const;

  /// Does nothing if the set exists. Throws ProtocolError if `id` is new but not the next one.
  void add(SetId id, const RankSet& members);
  /// False if the set was removed before.
  bool remove(SetId id);

  /// From now on the rank counts as having submitted every operation. Returns the operations that
  /// this completes.
  [[nodiscard]] std::vector<Readiness> join(int rank);
  /// No rank counts as joined any more.
  void release_joined();
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
