// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/set_table.hpp"

#include <iterator>
#include <string>
#include <utility>

#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {

SetTable::SetTable(const TreePosition& place) : below_(RankSet::of(place.rank)) {
  for (const Child& child : place.children) below_.insert(child.ranks);
  add(world_set, RankSet::range(0, place.ranks - 1));
}

NegotiatedSet* SetTable::find(SetId id) {
  const auto found = sets_.find(id);
  if (found != sets_.end()) return &found->second;
  if (id >= next_) throw ProtocolError("process set " + std::to_string(id) + " is unknown");
  return nullptr;
}

NegotiatedSet& SetTable::at(SetId id) {
  NegotiatedSet* const found = find(id);
  if (found == nullptr) throw ProtocolError("process set " + std::to_string(id) + " was removed");
  return *found;
}

NegotiatedSet* SetTable::find_whole(SetId id) {
  NegotiatedSet* found = find(id);
  return found != nullptr && !found->broken ? found : nullptr;
}

RankSet SetTable::members_of(SetId id) const {
  const auto set = sets_.find(id);
  return set == sets_.end() ? RankSet() : set->second.members;
}

RankSet SetTable::members_of_removed(SetId id) const {
  const auto removed = removed_.find(id);
  return removed == removed_.end() ? RankSet() : removed->second;
}

SetId SetTable::id_for(const RankSet& members) const {
  const auto same = std::find_if(std::next(sets_.begin()), sets_.end(),
                                 [&](const auto& one) { return one.second.members == members; });
  return same != sets_.end() ? same->first : next_;
}

void SetTable::add(SetId id, const RankSet& members) {
  if (sets_.contains(id)) return;
  if (id != next_) throw ProtocolError("process sets came out of turn");
  ++next_;
  NegotiatedSet& set =
      sets_.emplace(id, NegotiatedSet{members, Tally(members.common(below_))}).first->second;
  // No key of a new set is pending yet, so the joins complete nothing.
  for (const int rank : joined_) static_cast<void>(set.tally.join(rank));
}

bool SetTable::remove(SetId id) {
  const auto set = sets_.find(id);
  if (set == sets_.end()) return false;
  removed_.emplace(id, std::move(set->second.members));
  sets_.erase(set);
  return true;
}

std::vector<Readiness> SetTable::join(int rank) {
  joined_.push_back(rank);
  std::vector<Readiness> complete;
  for (auto& [id, set] : sets_)
    for (Readiness& one : set.tally.join(rank)) complete.push_back(std::move(one));
  return complete;
}

void SetTable::release_joined() {
  joined_.clear();
  for (auto& [id, set] : sets_) set.tally.release_joined();
}

}  // namespace kolo::internal::negotiation
