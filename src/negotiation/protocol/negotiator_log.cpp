// SPDX-License-Identifier: Apache-2.0
// The half of the negotiator for the log: the root writes it, and every rank applies it.
#include <type_traits>
#include <utility>

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// While this many batches of a set are in progress at the root, it appends no further batch of the
/// set, so that agreed operations gather and can be fused.
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

// ---- writing the log ----

void Negotiator::agree(const NegotiatedSet& set, Readiness complete) {
  RankSet absent;
  if (!sets_.joined().empty()) absent = set.members.without(complete.submitters());
  const Descriptor& descriptor = complete.variants.front().descriptor;
  if (complete.disagrees() || !is_defined_without(descriptor, absent)) {
    sequencer_.append(MismatchEntry{std::move(complete), std::move(absent)});
  } else if (descriptor.type == OperationType::add_process_set) {
    append(AddSetEntry{complete.key, sets_.id_for(descriptor.ranks), descriptor.ranks});
  } else if (descriptor.type == OperationType::remove_process_set) {
    append_all_batches();
    append(RemoveSetEntry{complete.key, descriptor.removed});
  } else {
    sequencer_.agree(std::move(complete.key), std::move(complete.variants.front().descriptor),
                     std::move(absent));
  }
}

/// Appends an entry and applies all entries up to and including it.
void Negotiator::append(EntryBody body) {
  sequencer_.append(std::move(body));
  apply_log();
}

/// Appends all agreed operations. Called before a departure, join or removal is appended, so that
/// the ranks that leave or join still execute all operations that were agreed before.
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
}

void Negotiator::sequence() {
  if (replay_.live()) return;
  apply_log();
  if (static_cast<int>(sets_.joined().size()) == place_.ranks) {
    append_all_batches();
    append(JoinEntry{sets_.joined().back()});
  }
  for (const SetId id : sequencer_.gathering()) {
    const NegotiatedSet& set = *sets_.find(id);
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
    if (std::holds_alternative<BatchEntry>(entry.body)) stalls_.on_batch(now_);
    if (may_plan_) {
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

// ---- applying the log ----

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

void Negotiator::answer(const Key& key, std::int64_t value) {
  const OwnOperations::Taken own = own_.take(key);
  actions_.answers.push_back({own.ticket, own.type, value});
}

void Negotiator::apply(const BatchEntry& batch, std::uint64_t sequence) {
  NegotiatedSet* set = sets_.find(batch.set);
  if (set == nullptr) throw ProtocolError("a batch of a removed process set");
  const bool takes_part = set->members.contains(place_.rank) && !batch.absent.contains(place_.rank);
  std::optional<Execute> execute;
  const auto add = [&](const Key& key, const Descriptor& descriptor) {
    if (!takes_part) return;
    if (!execute)
      execute = Execute{sequence, batch.set, set->members, batch.absent, descriptor, {}, joins_};
    execute->tickets.push_back(own_.take(key).ticket);
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
  ++unexecuted_;
  actions_.executes.push_back(std::move(*execute));
}

void Negotiator::apply(const MismatchEntry& entry) {
  if (!entry.conflict.submitters().contains(place_.rank)) return;
  actions_.fails.push_back(
      {own_.take(entry.conflict.key).ticket, entry.conflict.disagrees()
                                                 ? explain_mismatch(entry.conflict)
                                                 : explain_absence(entry.conflict, entry.absent)});
}

void Negotiator::apply(const JoinEntry& entry) {
  sets_.release_joined();
  ++joins_;
  if (const std::optional<Key> join = std::exchange(own_join_, std::nullopt)) {
    answer(*join, entry.last);
  } else if (!sets_.world().broken) {
    throw ProtocolError("all ranks have joined, but this one has not");
  }
}

void Negotiator::apply(const AddSetEntry& entry) {
  sets_.add(entry.set, entry.ranks);
  // A rank that has joined did not submit the operation.
  if (own_.contains(entry.key)) answer(entry.key, entry.set);
}

void Negotiator::apply(const RemoveSetEntry& entry) {
  if (sets_.remove(entry.set)) {
    reports_.remove(entry.set, cache_);
    sequencer_.remove(entry.set);
    actions_.removed.push_back(entry.set);
    fail_own(entry.set, [&](const Key& key, OperationType type) {
      return explain_removal(type, key, sets_.members_of_removed(entry.set));
    });
  }
  if (own_.contains(entry.key)) answer(entry.key, entry.set);
}

void Negotiator::apply(const Departure& departure) {
  // Every rank applies the same log, so all other ranks learn of this departure too.
  if (departure.rank == place_.rank) left_ = true;
  for (auto& [id, set] : sets_)
    if (set.members.contains(departure.rank)) break_off(id, set, departure);
}

void Negotiator::apply(const StallEntry& entry) {
  if (NegotiatedSet* set = sets_.find(entry.lag.key.set)) break_off(entry.lag.key.set, *set, entry);
}

void Negotiator::apply(const InquiryEntry& entry) {
  actions_.questions.push_back(entry.key);
  const NegotiatedSet* set = sets_.find(entry.key.set);
  if (is_root() || set == nullptr) return;
  if (std::optional<Lag> lag = set->tally.lag(entry.key, now_))
    reports_.current().lags.push_back(std::move(*lag));
}

void Negotiator::break_off(SetId id, NegotiatedSet& set, const BreakCause& cause) {
  if (set.broken) return;  // errors report the first cause
  set.broken = cause;
  set.tally.clear();
  if (id == world_set && std::exchange(own_join_, std::nullopt)) excluded_after_join_ = true;
  fail_own(id, [&](const Key& key, OperationType type) { return broken_failure(set, key, type); });
}

void Negotiator::fail_own(SetId set,
                          const std::function<Failure(const Key&, OperationType)>& explain) {
  for (const Withdrawn& own : own_.take_all(set))
    actions_.fails.push_back({own.ticket, explain(own.key, own.descriptor.type)});
}

Failure Negotiator::broken_failure(const NegotiatedSet& set, const Key& key,
                                   OperationType type) const {
  if (const auto* stalled = std::get_if<StallEntry>(&*set.broken))
    return explain_stall(*stalled, type, key);
  const Departure& departure = std::get<Departure>(*set.broken);
  return departure.rank == place_.rank ? explain_own_departure(departure, type, key)
                                       : explain_departure(departure, type, key);
}

void Negotiator::apply(const EndEntry& /*entry*/) { ended_ = true; }

// ---- the beginning of plans ----

/// Called by the root after it has appended a batch. No inquiry, join or operation of another set
/// may be in progress, since it would append an entry to the log within the plan. Agreed operations
/// of the world that are in no batch yet are withdrawn, like all pending ones.
void Negotiator::begin_plan_if_due() {
  if (!may_plan_ || !sets_.joined().empty() || stalls_.is_inquiring() || sets_.world().broken ||
      replay_.epoch() == last_epoch)
    return;
  std::optional<PlanEntry> plan = planner_.plan(replay_.epoch() + 1);
  if (!plan) return;
  for (const SetId set : sequencer_.gathering())
    if (set != world_set) return;
  for (const auto& [id, set] : sets_)
    if (id != world_set && !set.tally.empty()) return;
  append(std::move(*plan));
}

/// Every rank withdraws its pending operations of the world and submits them to the plan, like all
/// later operations. Reports still under way do not count, since they carry an earlier epoch.
void Negotiator::apply(const PlanEntry& entry, std::uint64_t sequence) {
  // The number of a batch counts the log entries and plan batches before it. All ranks run the same
  // batches of a plan, and apply no log entry within a plan. So the numbers agree on all ranks and
  // ascend through the log and the plans.
  replay_.begin(entry, sequence + 1, now_);
  own_join_.reset();
  sets_.release_joined();
  sets_.world().tally.clear();
  sequencer_.forget(world_set);
  reports_.withdraw(cache_);
  for (const Withdrawn& one : own_.take_all(world_set))
    replay_.submit(one.ticket, one.key, one.descriptor, now_);
}

}  // namespace kolo::internal::negotiation
