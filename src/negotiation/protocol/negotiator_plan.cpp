// SPDX-License-Identifier: Apache-2.0
// Plans: how the root begins one, and how every rank moves its pending operations into and out of
// it.
//
// Invariant: while a plan is live on a rank, that rank negotiates nothing of the world, and sends
// and appends nothing. A rank for which the plan is over has read on the board that all ranks have
// stopped. A later reader of the board reads the same, so a rank that receives a message from after
// the plan finds the plan over before it reads the message.
#include <algorithm>

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// Batches of a plan are started while fewer than this many are in progress.
constexpr int batches_started = 4;

}  // namespace

/// Called by the root when it has appended a batch. Nothing may be in progress that would append an
/// entry to the log within the plan. Agreed operations that are in no batch yet are withdrawn, like
/// all pending ones.
void Negotiator::begin_plan_if_due() {
  if (!may_plan() || !joined_.empty() || !inquiries_.empty() || sets_.at(world_set).broken ||
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
/// later ones. Reports of them that are still on their way up do not count: they carry an earlier
/// epoch.
void Negotiator::apply(const PlanEntry& entry, std::uint64_t sequence) {
  // A batch's number is the number of log entries and plan batches before it. All ranks run the
  // same batches of a plan, and read no entry within a plan: so the numbers agree on all ranks, and
  // ascend through the log and the plans.
  replay_.begin(entry, sequence + 1, now_);
  std::vector<Withdrawn> pending;
  for (auto own = own_.begin(); own != own_.end();) {
    if (own->first.set != world_set) {
      ++own;
      continue;
    }
    pending.push_back(
        {own->second.order, own->second.ticket, own->first, std::move(own->second.descriptor)});
    own = own_.erase(own);
  }
  std::ranges::sort(pending, {}, &Withdrawn::order);
  own_join_.reset();
  joined_.clear();
  for (auto& [id, set] : sets_) set.tally.release_joined();
  sets_.at(world_set).tally.clear();
  sequencer_.forget(world_set);
  for (ReadinessReport& message : outgoing_reports_) withdraw_from(message);
  for (const Withdrawn& one : pending) replay_.submit(one.ticket, one.key, one.descriptor, now_);
}

/// Removes everything about operations of the world, and joins.
void Negotiator::withdraw_from(ReadinessReport& message) const {
  const auto of_world = [](const auto& one) { return one.key.set == world_set; };
  message.joins.clear();
  std::erase_if(message.ready, of_world);
  std::erase_if(message.lags, of_world);
  CacheSlotSet others;
  message.slots.for_each([&](CacheSlot slot) {
    if (!of_world(cache_[slot])) others.insert(slot);
  });
  message.slots = std::move(others);
}

void Negotiator::follow_plan() {
  if (!replay_.live()) return;
  Set& world = sets_.at(world_set);
  const std::size_t before = actions_.executes.size();
  replay_.poll(now_, batches_started - world.unfinished, actions_.executes);
  world.unfinished += static_cast<int>(actions_.executes.size() - before);
  for (std::size_t i = before; i < actions_.executes.size(); ++i)
    actions_.executes[i].joins = joins_;
  if (replay_.over()) end_plan();
}

void Negotiator::find_upcoming() {
  // With room for it only: the one before it is done then, or nearly.
  if (!replay_.live() || sets_.at(world_set).unfinished >= batches_started) return;
  actions_.upcoming = replay_.take_upcoming();
  if (actions_.upcoming) actions_.upcoming->joins = joins_;
}

void Negotiator::end_plan() {
  replayed_ += replay_.ran();
  planner_.ended(replay_.passes());
  for (const Withdrawn& one : replay_.end()) negotiate(one.ticket, one.key, one.descriptor);
  if (const auto departure = std::exchange(own_departure_, std::nullopt)) depart(*departure);
  for (const auto& [peer, message] : std::exchange(postponed_, {})) {
    const auto child = std::ranges::find(place_.children, peer, &Child::rank);
    on_report(*child, message);
  }
}

}  // namespace kolo::internal::negotiation
