// Plans: how the root begins one, and what that means for what every rank had under way.
//
// While a plan is live nothing of the world is negotiated, and no rank sends or appends anything
// before the plan is over on it. Who sees that the plan is over has seen that all ranks have
// stopped; so whoever reads its messages sees that too, and finds the plan over as well.
#include <algorithm>

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// Batches of a plan are started while so many are under way. All of them run in any case.
constexpr int batches_started = 4;

}  // namespace

/// By the root, when a batch was appended. Nothing else may be under way that would end in an entry
/// of the log; what was agreed but is in no batch yet is withdrawn like all that is pending.
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

/// Every rank withdraws what it has pending in the world, and submits it to the plan, as it submits
/// all that follows. What of it is on its way up counts no more: it bears the epoch before this.
void Negotiator::apply(const PlanEntry& entry, std::uint64_t sequence) {
  // All ranks count the log's entries and the batches of all plans so far alike: those of a plan
  // are before its end everywhere, and no entry is read within a plan. So the numbers agree, and
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

/// Takes out what it says of the world, and of joins.
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
  if (replay_.over()) end_plan();
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
