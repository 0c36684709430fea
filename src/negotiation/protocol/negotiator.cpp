// SPDX-License-Identifier: Apache-2.0
// Events, and readiness on its way up. How the log is written and read is in negotiator_log.cpp.
#include "negotiation/protocol/negotiator.hpp"

#include <algorithm>

#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// How long a plan waits for late ranks. Afterwards it stops, so that negotiation can report them
/// before the stall limits.
std::chrono::nanoseconds board_patience(const NegotiatorOptions& options) {
  std::chrono::nanoseconds patience = std::chrono::seconds(1);
  for (const auto age : {options.stall_warning, options.stall_shutdown})
    if (age.count() != 0) patience = std::min(patience, age / 2);
  return patience;
}

}  // namespace

Negotiator::Negotiator(const NegotiatorOptions& options)
    : place_(options.place),
      options_(options),
      now_(options.now),
      sequencer_(options.fusion_threshold, options.cache_capacity),
      replay_({options.board, options.place.rank, options.place.ranks, board_patience(options)}) {
  add_set(world_set, RankSet::range(0, place_.ranks - 1));
}

// ---- events ----

void Negotiator::on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor,
                           std::uint64_t version) {
  if (replay_.live()) return replay_.submit(ticket, key, descriptor, now_, version);
  negotiate(ticket, key, descriptor);
}

void Negotiator::negotiate(Ticket ticket, const Key& key, const Descriptor& descriptor) {
  Set* set = find(key.set);
  if (set == nullptr || set->broken) {
    actions_.fails.push_back(
        {ticket, set == nullptr ? explain_removal(descriptor.type, key, removed_members(key.set))
                                : broken_failure(*set, key, descriptor.type)});
    return;
  }
  if (excluded_after_join_) {
    actions_.fails.push_back({ticket, broken_failure(sets_.at(world_set), key, descriptor.type)});
    return;
  }
  own_.emplace(key, Own{ticket, next_order_++, descriptor});
  if (descriptor.type == OperationType::join) {
    own_join_ = key;
    on_joined(place_.rank);
    return;
  }
  count(*set, set->tally.add(key, descriptor, RankSet::of(place_.rank), now_));
}

void Negotiator::on_message(int peer, std::span<const std::byte> bytes) {
  ControlMessage message = decode(bytes, place_.ranks);
  if (message.session == options_.session) on_message(peer, std::move(message.body), bytes);
}

void Negotiator::on_message(int peer, MessageBody message, std::span<const std::byte> bytes) {
  // The sender has read the end of the plan on the board. This rank reads the same if it looks at
  // the board before the message: no message is handled within a plan by mistake.
  follow_plan();
  if (const auto* update = std::get_if<LogUpdate>(&message)) {
    if (peer != place_.parent)
      throw ProtocolError("rank " + std::to_string(peer) + " is not above this one");
    return on_log_update(*update, bytes);
  }
  auto* report = std::get_if<ReadinessReport>(&message);
  if (report == nullptr) throw ProtocolError("a message that does not belong to negotiation");
  const auto child = std::ranges::find(place_.children, peer, &Child::rank);
  if (child == place_.children.end())
    throw ProtocolError("rank " + std::to_string(peer) + " is not below this one");
  // The root removes sets, and a child reads of it only through its parent.
  if (report->removals > cache_.removals()) throw ProtocolError("a message of a removal to come");
  drop_freed_slots(*report);
  report->slots.for_each([&](CacheSlot slot) {
    if (!cache_.has(slot)) throw ProtocolError("slot " + std::to_string(slot) + " is unknown");
  });
  // The root begins plans, and a child learns of them only through its parent.
  if (report->epoch > replay_.epoch()) throw ProtocolError("a message of a plan to come");
  // The sender withdrew these operations when it read of the plan, and submits them again.
  if (report->epoch < replay_.epoch()) withdraw_from(*report);
  if (!replay_.live()) return on_report(*child, *report);
  if (report->empty()) return;
  // Something that is not in the plan: it is handled when all ranks have stopped.
  postponed_.emplace_back(peer, std::move(*report));
  replay_.stop();
}

void Negotiator::on_log_update(const LogUpdate& update, std::span<const std::byte> bytes) {
  // The parent sends the log only outside plans, and this rank has just read the board.
  if (replay_.live()) throw ProtocolError("a part of the log came within a plan");
  // The same bytes are passed on: all ranks apply the same log, and nothing is encoded again.
  for (const Child& child : place_.children)
    actions_.sends.push_back({child.rank, {bytes.begin(), bytes.end()}});
  for (const Entry& entry : update.entries) apply(entry);
}

void Negotiator::on_time(TimePoint now) {
  now_ = now;
  if (is_root()) conclude_inquiries();
  report_late_operations();
}

void Negotiator::on_done(SetId set) {
  if (Set* found = find(set)) --found->unfinished;
}

void Negotiator::on_leave(const std::string& reason) {
  Departure departure{place_.rank, reason};
  if (!replay_.live()) return depart(departure);
  own_departure_ = std::move(departure);
  replay_.stop();
}

void Negotiator::depart(const Departure& departure) {
  if (is_root()) {
    append_departure(departure);
  } else {
    outgoing_report().departures.push_back(departure);
  }
}

bool Negotiator::outstanding() const {
  return !own_.empty() || replay_.pending() || replay_.stopping() ||
         std::ranges::any_of(sets_,
                             [](const auto& numbered) { return !numbered.second.tally.empty(); });
}

Actions Negotiator::take() {
  follow_plan();
  find_upcoming();
  if (is_root()) {
    sequence();
    if (!outgoing_update_.entries.empty()) {
      const std::vector<std::byte> bytes =
          encode(options_.session, std::exchange(outgoing_update_, {}));
      for (const Child& child : place_.children) actions_.sends.push_back({child.rank, bytes});
    }
  } else {
    for (ReadinessReport& message : outgoing_reports_) {
      message.epoch = replay_.epoch();
      message.removals = cache_.removals();
      if (!message.empty())
        actions_.sends.push_back({place_.parent, encode(options_.session, std::move(message))});
    }
    outgoing_reports_.clear();
  }
  return std::exchange(actions_, {});
}

// ---- readiness on its way up ----

/// Null if the set was removed.
Negotiator::Set* Negotiator::find(SetId set) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) return &found->second;
  if (set >= next_set_) throw ProtocolError("process set " + std::to_string(set) + " is unknown");
  return nullptr;
}

/// Null also if the set is broken: a rank below may have sent its report before it learned of that.
Negotiator::Set* Negotiator::find_whole(SetId set) {
  Set* found = find(set);
  return found != nullptr && !found->broken ? found : nullptr;
}

ReadinessReport& Negotiator::outgoing_report() {
  if (outgoing_reports_.empty()) outgoing_reports_.emplace_back();
  return outgoing_reports_.back();
}

void Negotiator::on_report(const Child& child, const ReadinessReport& message) {
  for (const int rank : message.joins) {
    // Joins and departures are counted: a rank that counts twice would stand in for another.
    if (!child.ranks.contains(rank) || std::ranges::find(joined_, rank) != joined_.end())
      throw ProtocolError("rank " + std::to_string(child.rank) + " reports a join of rank " +
                          std::to_string(rank) + " that cannot be");
    on_joined(rank);
  }
  message.slots.for_each([&](CacheSlot slot) {
    // By a removal that a join above has completed, or one that came while the message waited for
    // the end of a plan.
    if (cache_.was_freed_after(slot, message.removals)) return;
    const ResponseCache::Item& item = cache_[slot];
    if (Set* set = find_whole(item.key.set))
      count(*set, set->tally.add(item.key, item.descriptor,
                                 set->tally.expected().common(child.ranks), now_));
  });
  for (const Readiness& readiness : message.ready)
    if (Set* set = find_whole(readiness.key.set)) count(*set, set->tally.add(readiness, now_));
  for (const Lag& lag : message.lags) {
    Set* set = find_whole(lag.key.set);
    if (set == nullptr) continue;
    set->tally.add(lag, now_);
    if (!is_root()) outgoing_report().lags.push_back(lag);
  }
  for (const RankStatus& status : message.statuses) pass_status(status);
  for (const Departure& departure : message.departures) depart(departure);
}

void Negotiator::on_joined(int rank) {
  if (joined_.empty()) {
    joined_since_ = asked_about_joins_ = now_;
    reported_join_.clear();
  }
  joined_.push_back(rank);
  std::vector<Readiness> complete;
  for (auto& [id, set] : sets_)
    for (Readiness& one : set.tally.join(rank)) complete.push_back(std::move(one));
  if (is_root()) {
    for (Readiness& one : complete)
      if (Set* set = find(one.key.set)) agree(*set, std::move(one));  // null: just removed
    return;
  }
  // Order of reports: the parent must count all earlier submissions of a rank before it counts the
  // rank as joined, so readiness goes into an earlier report. A slot's bit stands only for ranks
  // that have not joined, so it goes with or after the join; the key cannot complete above without
  // it.
  std::vector<CacheSlot> slots;
  for (Readiness& one : complete) {
    if (const auto slot = slot_of(*find(one.key.set), one)) {
      slots.push_back(*slot);
    } else {
      outgoing_report().ready.push_back(std::move(one));
    }
  }
  if (!outgoing_report().slots.empty() || !outgoing_report().ready.empty())
    outgoing_reports_.emplace_back();
  outgoing_report().joins.push_back(rank);
  for (const CacheSlot slot : slots) outgoing_report().slots.insert(slot);
}

void Negotiator::count(Set& set, std::optional<Readiness> complete) {
  if (!complete) return;
  if (is_root()) {
    agree(set, std::move(*complete));
  } else if (const auto slot = slot_of(set, *complete)) {
    outgoing_report().slots.insert(*slot);
  } else {
    outgoing_report().ready.push_back(std::move(*complete));
  }
}

/// The slot whose bit means the same: all expected ranks submitted the cached descriptor.
std::optional<CacheSlot> Negotiator::slot_of(const Set& set, const Readiness& complete) const {
  const auto& variants = complete.variants;
  if (complete.disagrees() || variants.front().ranks != set.tally.expected()) return std::nullopt;
  return cache_.find(complete.key, variants.front().descriptor);
}

}  // namespace kolo::internal::negotiation
