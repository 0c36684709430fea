// SPDX-License-Identifier: Apache-2.0
// Process sets: how entries of the log add, remove and break them, and how that fails pending
// operations of this rank.

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {

void Negotiator::apply(const AddSetEntry& entry) {
  if (!sets_.contains(entry.set)) {
    if (entry.set != next_set_) throw ProtocolError("process sets came out of turn");
    ++next_set_;
    add_set(entry.set, entry.ranks);
  }
  // A rank that has joined did not submit the operation.
  if (own_.contains(entry.key)) answer(entry.key, entry.set);
}

void Negotiator::add_set(SetId id, const RankSet& members) {
  RankSet below = RankSet::of(place_.rank);
  for (const Child& child : place_.children) below.insert(child.ranks);
  Set& set = sets_.emplace(id, Set{members, Tally(members.common(below))}).first->second;
  // Nothing of a new set is pending yet, so a join completes nothing.
  for (const int rank : joined_) static_cast<void>(set.tally.join(rank));
}

void Negotiator::apply(const RemoveSetEntry& entry) {
  if (const auto set = sets_.find(entry.set); set != sets_.end()) {
    // Kept for error messages: set numbers are never reused.
    removed_.emplace(entry.set, set->second.members);
    sets_.erase(set);
    // Reports that are not on their way yet were made before this removal.
    for (ReadinessReport& message : outgoing_reports_) message.removals = cache_.removals();
    cache_.remove(entry.set);
    sequencer_.remove(entry.set);
    for (ReadinessReport& message : outgoing_reports_) drop_freed_slots(message);
    fail_own(entry.set, [&](const Key& key, OperationType type) {
      return explain_removal(type, key, removed_members(entry.set));
    });
  }
  if (own_.contains(entry.key)) answer(entry.key, entry.set);
}

/// Such a slot stood for a key of a set that is removed, and may belong to another key by now.
void Negotiator::drop_freed_slots(ReadinessReport& message) const {
  if (message.removals == cache_.removals()) return;
  CacheSlotSet others;
  message.slots.for_each([&](CacheSlot slot) {
    if (!cache_.was_freed_after(slot, message.removals)) others.insert(slot);
  });
  message.slots = std::move(others);
}

void Negotiator::apply(const Departure& departure) {
  // Every rank reads the same log, so every rank learns of the departure.
  if (departure.rank == place_.rank) left_ = true;
  for (auto& [id, set] : sets_)
    if (set.members.contains(departure.rank)) break_off(id, set, departure);
}

void Negotiator::apply(const StallEntry& entry) {
  if (Set* set = find(entry.lag.key.set)) break_off(entry.lag.key.set, *set, entry);
}

void Negotiator::break_off(SetId id, Set& set, const Cause& cause) {
  if (set.broken) return;  // errors report the first cause
  set.broken = cause;
  set.tally.clear();
  if (id == world_set && std::exchange(own_join_, std::nullopt)) excluded_after_join_ = true;
  fail_own(id, [&](const Key& key, OperationType type) { return broken_failure(set, key, type); });
}

void Negotiator::fail_own(SetId set,
                          const std::function<Failure(const Key&, OperationType)>& explain) {
  for (auto own = own_.begin(); own != own_.end();) {
    if (own->first.set != set) {
      ++own;
      continue;
    }
    actions_.fails.push_back(
        {own->second.ticket, explain(own->first, own->second.descriptor.type)});
    own = own_.erase(own);
  }
}

Failure Negotiator::broken_failure(const Set& set, const Key& key, OperationType type) const {
  if (const auto* stalled = std::get_if<StallEntry>(&*set.broken))
    return explain_stall(*stalled, type, key);
  const Departure& departure = std::get<Departure>(*set.broken);
  return departure.rank == place_.rank ? explain_own_departure(departure, type, key)
                                       : explain_departure(departure, type, key);
}

}  // namespace kolo::internal::negotiation
