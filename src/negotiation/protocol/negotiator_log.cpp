// SPDX-License-Identifier: Apache-2.0
// The log: how the root writes it, and how every rank reads it.
#include <algorithm>
#include <iterator>

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// While this many batches of a set are in progress at the root, agreed operations gather for the
/// next batch.
constexpr int batches_under_way = 2;

bool is_defined_without(const Descriptor& descriptor, const RankSet& absent) {
  switch (traits_of(descriptor.type).needs) {
    case NeededRanks::none: return true;
    case NeededRanks::root: return !absent.contains(descriptor.root);
    case NeededRanks::all: return absent.empty();
  }
  return true;
}

}  // namespace

// ---- as the root writes it ----

void Negotiator::agree(Set& set, Readiness complete) {
  RankSet absent;
  if (!joined_.empty()) absent = set.members.without(complete.submitters());
  const Descriptor& descriptor = complete.variants.front().descriptor;
  if (complete.disagrees() || !is_defined_without(descriptor, absent)) {
    sequencer_.append(MismatchEntry{std::move(complete), std::move(absent)});
  } else if (descriptor.type == OperationType::add_process_set) {
    // Not the world, which comes first: an equal set must be removable.
    const auto same = std::find_if(std::next(sets_.begin()), sets_.end(), [&](const auto& known) {
      return known.second.members == descriptor.ranks;
    });
    append(
        AddSetEntry{complete.key, same != sets_.end() ? same->first : next_set_, descriptor.ranks});
  } else if (descriptor.type == OperationType::remove_process_set) {
    append_all_batches();
    append(RemoveSetEntry{complete.key, descriptor.removed});
  } else {
    sequencer_.agree(std::move(complete.key), std::move(complete.variants.front().descriptor),
                     std::move(absent));
  }
}

/// Applies all entries up to and including this one.
void Negotiator::append(EntryBody body) {
  sequencer_.append(std::move(body));
  apply_log();
}

/// Called before a departure, join or removal is appended: ranks that leave or join still execute
/// all operations that were agreed earlier.
void Negotiator::append_all_batches() {
  for (const SetId set : sequencer_.gathering())
    while (sequencer_.append_batch(set, cache_)) apply_log();
}

void Negotiator::append_departure(const Departure& departure) {
  if (departed_.contains(departure.rank))
    throw ProtocolError("rank " + std::to_string(departure.rank) + " has left twice");
  append_all_batches();
  append(departure);
  departed_.insert(RankSet::of(departure.rank));
  if (departed_.count() == place_.ranks) append(EndEntry{});
}

void Negotiator::sequence() {
  if (replay_.live()) return;
  apply_log();
  if (static_cast<int>(joined_.size()) == place_.ranks) {
    append_all_batches();
    append(JoinEntry{joined_.back()});
  }
  for (const SetId id : sequencer_.gathering()) {
    const Set& set = sets_.at(id);
    while (!replay_.live() && set.unfinished < batches_under_way &&
           sequencer_.append_batch(id, cache_)) {
      apply_log();
      begin_plan_if_due();
    }
  }
}

void Negotiator::apply_log() {
  while (sequencer_.has_entry()) {
    outgoing_update_.entries.push_back(sequencer_.take_entry());
    const Entry& entry = outgoing_update_.entries.back();
    if (std::holds_alternative<BatchEntry>(entry.body)) active_at_ = now_;
    if (may_plan()) {
      const auto* batch = std::get_if<BatchEntry>(&entry.body);
      if (batch != nullptr && batch->set == world_set && batch->absent.empty()) {
        planner_.see(*batch, cache_, now_);
      } else {
        planner_.interrupt();
      }
    }
    apply(entry);
  }
}

// ---- as every rank reads it ----

void Negotiator::apply(const Entry& entry) {
  // Invariant: every rank applies the same entries in the same order, and its caches, sets and
  // batches are a function of them.
  if (entry.sequence != next_sequence_++)
    throw ProtocolError("log entry " + std::to_string(entry.sequence) + " came out of turn");
  std::visit(
      [&](const auto& body) {
        if constexpr (std::is_same_v<decltype(body), const BatchEntry&> ||
                      std::is_same_v<decltype(body), const PlanEntry&>) {
          apply(body, entry.sequence + replayed_);
        } else {
          apply(body);
        }
      },
      entry.body);
}

Ticket Negotiator::answered(const Key& key) {
  const auto own = own_.find(key);
  if (own == own_.end())
    throw ProtocolError(to_string(key) + " was answered, but this rank did not submit it");
  const Ticket ticket = own->second.ticket;
  own_.erase(own);
  return ticket;
}

void Negotiator::answer(const Key& key, std::int64_t value) {
  const OperationType type =
      own_.contains(key) ? own_.at(key).descriptor.type : OperationType::barrier;
  actions_.answers.push_back({answered(key), type, value});
}

void Negotiator::apply(const BatchEntry& batch, std::uint64_t sequence) {
  Set* set = find(batch.set);
  if (set == nullptr) throw ProtocolError("a batch of a removed process set");
  const bool takes_part = set->members.contains(place_.rank) && !batch.absent.contains(place_.rank);
  std::optional<Execute> execute;
  const auto add = [&](const Key& key, const Descriptor& descriptor) {
    if (!takes_part) return;
    if (!execute)
      execute = Execute{sequence, batch.set, set->members, batch.absent, descriptor, {}, joins_};
    execute->tickets.push_back(answered(key));
  };
  batch.slots.for_each([&](CacheSlot slot) {
    if (!cache_.has(slot)) throw ProtocolError("slot " + std::to_string(slot) + " is unknown");
    add(cache_[slot].key, cache_[slot].descriptor);
  });
  for (const UncachedOperation& uncached : batch.uncached) {
    if (uncached.slot && !cache_.enter(*uncached.slot, uncached.key, uncached.descriptor))
      throw ProtocolError("slot " + std::to_string(*uncached.slot) + " cannot be given to " +
                          to_string(uncached.key));
    add(uncached.key, uncached.descriptor);
  }
  if (!takes_part) return;
  if (!execute) throw ProtocolError("an empty batch");
  ++set->unfinished;
  actions_.executes.push_back(std::move(*execute));
}

void Negotiator::apply(const MismatchEntry& entry) {
  if (!entry.conflict.submitters().contains(place_.rank)) return;
  actions_.fails.push_back(
      {answered(entry.conflict.key), entry.conflict.disagrees()
                                         ? explain_mismatch(entry.conflict)
                                         : explain_absence(entry.conflict, entry.absent)});
}

void Negotiator::apply(const JoinEntry& entry) {
  joined_.clear();
  ++joins_;
  for (auto& [id, set] : sets_) set.tally.release_joined();
  if (const std::optional<Key> join = std::exchange(own_join_, std::nullopt)) {
    answer(*join, entry.last);
  } else if (!sets_.at(world_set).broken) {
    throw ProtocolError("all ranks have joined, but this one has not");
  }
}

void Negotiator::apply(const EndEntry& /*entry*/) { ended_ = true; }

}  // namespace kolo::internal::negotiation
