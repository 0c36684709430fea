// SPDX-License-Identifier: Apache-2.0
// Handles events, passes readiness up the tree, and follows plans. negotiator_log.cpp writes and
// reads the log.
#include "negotiation/protocol/negotiator.hpp"

#include <algorithm>

#include "negotiation/stall/explain.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// A plan starts batches only while fewer than this many batches of the world are in progress.
constexpr int max_plan_batches = 4;

/// The maximum number of statuses that one host sends in answer to an inquiry.
constexpr std::size_t max_answers = 64;

/// The time for which a plan waits for late ranks. Then the plan stops, so that negotiation can
/// report these ranks before the stall limits.
std::chrono::nanoseconds board_patience(const Settings& settings) {
  std::chrono::nanoseconds patience = std::chrono::seconds(1);
  for (const auto age : {settings.stall_warning, settings.stall_shutdown})
    if (age.count() != 0) patience = std::min(patience, age / 2);
  return patience;
}

}  // namespace

Negotiator::Negotiator(const Settings& settings, const NegotiatorOptions& options)
    : settings_(settings),
      place_(options.place),
      session_(options.session),
      may_plan_(options.board != nullptr && settings.plan_replay),
      now_(options.now),
      sets_(options.place),
      replay_({options.board, options.place.rank, options.place.ranks, board_patience(settings)}),
      sequencer_(settings),
      stalls_(settings, options.place.ranks, sets_, [this](EntryBody body) {
        if (std::holds_alternative<StallEntry>(body)) append_all_batches();
        append(std::move(body));
      }) {}

// ---- events ----

void Negotiator::on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor,
                           std::uint64_t version) {
  if (replay_.live()) return replay_.submit(ticket, key, descriptor, now_, version);
  negotiate(ticket, key, descriptor);
}

void Negotiator::negotiate(Ticket ticket, const Key& key, const Descriptor& descriptor) {
  NegotiatedSet* set = sets_.find(key.set);
  if (set == nullptr || set->broken) {
    actions_.fails.push_back(
        {ticket, set == nullptr
                     ? explain_removal(descriptor.type, key, sets_.members_of_removed(key.set))
                     : broken_failure(*set, key, descriptor.type)});
    return;
  }
  if (excluded_after_join_) {
    actions_.fails.push_back({ticket, broken_failure(sets_.world(), key, descriptor.type)});
    return;
  }
  own_.add(ticket, key, descriptor);
  if (descriptor.type == OperationType::join) {
    own_join_ = key;
    on_joined(place_.rank);
    return;
  }
  count(*set, set->tally.add(key, descriptor, RankSet::of(place_.rank), now_));
}

void Negotiator::on_message(int peer, std::span<const std::byte> bytes) {
  ControlMessage message = decode(bytes, place_.ranks);
  if (message.session == session_) on_message(peer, std::move(message.body), bytes);
}

void Negotiator::on_message(int peer, MessageBody message, std::span<const std::byte> bytes) {
  // Ranks send messages only after they have read the end of the plan on the board. This rank reads
  // the board before it handles the message, so it finds the same end.
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
  // A child cannot know more removals than its parent, from which it receives the log.
  if (report->removals > cache_.removals()) throw ProtocolError("a message of a removal to come");
  drop_freed_slots(*report, cache_);
  report->slots.for_each([&](CacheSlot slot) {
    if (!cache_.has(slot)) throw ProtocolError("slot " + std::to_string(slot) + " is unknown");
  });
  // A child cannot know a later plan than its parent, from which it receives the log.
  if (report->epoch > replay_.epoch()) throw ProtocolError("a message of a plan to come");
  // The sender withdrew these operations when it learned of the plan, and submits them again.
  if (report->epoch < replay_.epoch()) withdraw_world(*report, cache_);
  if (!replay_.live()) return on_report(*child, *report);
  if (report->empty()) return;
  // The plan needs no messages, so the report concerns something outside it. Stop the plan, and
  // handle the report when all ranks have stopped.
  postponed_.emplace_back(peer, std::move(*report));
  replay_.stop();
}

void Negotiator::on_log_update(const LogUpdate& update, std::span<const std::byte> bytes) {
  // The parent sends the log only after the plan has ended, and this rank has just read the board.
  if (replay_.live()) throw ProtocolError("a part of the log came within a plan");
  // Forward the bytes unchanged: all ranks apply the same log, so encoding it again is not needed.
  for (const Child& child : place_.children)
    actions_.sends.push_back({child.rank, {bytes.begin(), bytes.end()}});
  for (const Entry& entry : update.entries) apply(entry);
}

void Negotiator::on_time(TimePoint now) {
  now_ = now;
  if (is_root()) {
    stalls_.on_time(now);
  } else {
    report_late_operations();
  }
}

void Negotiator::on_done(SetId set) {
  --unexecuted_;
  if (NegotiatedSet* found = sets_.find(set)) --found->unfinished;
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
    reports_.current().departures.push_back(departure);
  }
}

/// Tells the parent, or counts, that no other rank needs this one for a batch any more. A departure
/// does not say so: batches that were agreed before it still run, and more may be appended until
/// every rank has applied it.
void Negotiator::finish_if_due() {
  if (left_ && unexecuted_ == 0 && !std::exchange(finished_, true))
    on_finished(RankSet::of(place_.rank));
}

void Negotiator::on_finished(const RankSet& ranks) {
  if (!is_root()) return reports_.current().finished.insert(ranks);
  if (!ranks.without(departed_).empty())
    throw ProtocolError("ranks " + to_string(ranks) + " have finished, but not left");
  all_finished_.insert(ranks);
  if (all_finished_.count() == place_.ranks) append(EndEntry{});
}

bool Negotiator::outstanding() const {
  return !own_.empty() || replay_.pending() || replay_.stopping() || sets_.any_pending();
}

Actions Negotiator::take() {
  follow_plan();
  find_upcoming();
  finish_if_due();
  if (is_root()) {
    sequence();
    if (!outgoing_update_.entries.empty()) {
      const std::vector<std::byte> bytes = encode(session_, std::exchange(outgoing_update_, {}));
      for (const Child& child : place_.children) actions_.sends.push_back({child.rank, bytes});
    }
  } else {
    for (ReadinessReport& report : reports_.take(replay_.epoch(), cache_.removals()))
      actions_.sends.push_back({place_.parent, encode(session_, std::move(report))});
  }
  actions_.reports = stalls_.take_reports();
  return std::exchange(actions_, {});
}

// ---- readiness that travels up the tree ----

void Negotiator::on_report(const Child& child, const ReadinessReport& message) {
  for (const int rank : message.joins) {
    // Joins are counted, so a rank that joined twice would count in place of another rank.
    if (!child.ranks.contains(rank) ||
        std::ranges::find(sets_.joined(), rank) != sets_.joined().end())
      throw ProtocolError("rank " + std::to_string(child.rank) + " reports a join of rank " +
                          std::to_string(rank) + " that cannot be");
    on_joined(rank);
  }
  // Lags come before readiness, which removes its key: a later lag would enter the key once more.
  for (const Lag& lag : message.lags) {
    NegotiatedSet* set = sets_.find_whole(lag.key.set);
    if (set == nullptr) continue;
    set->tally.add(lag, now_);
    if (!is_root()) reports_.current().lags.push_back(lag);
  }
  message.slots.for_each([&](CacheSlot slot) {
    // The slot may have been freed since the check in `on_message`: a join above has completed a
    // removal, or the log removed a set while the report waited for the end of a plan.
    if (cache_.was_freed_after(slot, message.removals)) return;
    const ResponseCache::Item& item = cache_[slot];
    if (NegotiatedSet* set = sets_.find_whole(item.key.set))
      count(*set, set->tally.add(item.key, item.descriptor,
                                 set->tally.expected().common(child.ranks), now_));
  });
  for (const Readiness& readiness : message.ready)
    if (NegotiatedSet* set = sets_.find_whole(readiness.key.set))
      count(*set, set->tally.add(readiness, now_));
  for (const RankStatus& status : message.statuses) pass_status(status);
  for (const Departure& departure : message.departures) depart(departure);
  if (!message.finished.empty()) {
    if (!message.finished.without(child.ranks).empty())
      throw ProtocolError("rank " + std::to_string(child.rank) + " reports on other ranks");
    on_finished(message.finished);
  }
}

void Negotiator::on_joined(int rank) {
  if (sets_.joined().empty()) stalls_.on_first_join(now_);
  std::vector<Readiness> complete = sets_.join(rank);
  if (is_root()) {
    for (Readiness& one : complete)
      if (NegotiatedSet* set = sets_.find(one.key.set))  // null: just removed
        agree(*set, std::move(one));
    return;
  }
  std::vector<OutgoingReports::Completed> completed;
  for (Readiness& one : complete) {
    const std::optional<CacheSlot> slot = slot_of(*sets_.find(one.key.set), one);
    completed.push_back({std::move(one), slot});
  }
  reports_.add_join(rank, std::move(completed));
}

void Negotiator::count(const NegotiatedSet& set, std::optional<Readiness> complete) {
  if (!complete) return;
  if (is_root()) return agree(set, std::move(*complete));
  const std::optional<CacheSlot> slot = slot_of(set, *complete);
  reports_.add(std::move(*complete), slot);
}

/// The slot whose bit can stand for this readiness: all expected ranks submitted the descriptor in
/// the cache. None if the readiness must be sent in full.
std::optional<CacheSlot> Negotiator::slot_of(const NegotiatedSet& set,
                                             const Readiness& complete) const {
  const auto& variants = complete.variants;
  if (complete.disagrees() || variants.front().ranks != set.tally.expected()) return std::nullopt;
  return cache_.find(complete.key, variants.front().descriptor);
}

// ---- late operations ----

/// Reports keys to the parent once they reach the earlier of the two stall limits, so that the root
/// knows their submitters when it acts.
void Negotiator::report_late_operations() {
  const auto warning = settings_.stall_warning;
  const auto shutdown = settings_.stall_shutdown;
  const auto age = warning.count() == 0    ? shutdown
                   : shutdown.count() == 0 ? warning
                                           : std::min(warning, shutdown);
  if (age.count() == 0) return;
  for (auto& [id, set] : sets_)
    for (Lag& lag : set.tally.late(age, now_)) reports_.current().lags.push_back(std::move(lag));
}

void Negotiator::on_answer(const std::vector<Key>& questions, std::vector<RankStatus> statuses) {
  // Put ranks first that have submitted none of the keys, since only `max_answers` are sent.
  std::stable_partition(statuses.begin(), statuses.end(), [&](const RankStatus& status) {
    return std::ranges::none_of(questions, [&](const Key& key) { return status.lists(key); });
  });
  if (statuses.size() > max_answers) statuses.resize(max_answers);
  for (RankStatus& status : statuses) pass_status(std::move(status));
}

void Negotiator::pass_status(RankStatus status) {
  if (is_root()) {
    stalls_.add_status(std::move(status));
  } else {
    reports_.current().statuses.push_back(std::move(status));
  }
}

void Negotiator::on_blocked(const std::vector<RankStatus>& host) {
  if (is_root() && !replay_.live()) stalls_.on_blocked(host, now_);
}

// ---- plans ----
//
// Invariant: while a plan is live on a rank, the rank neither negotiates operations of the world,
// nor sends messages, nor appends to the log. A rank ends the plan only after it has read on the
// board that all ranks have stopped. Every rank that reads the board later sees this too. So a rank
// that receives a message sent after the plan ends the plan before it handles the message.

void Negotiator::follow_plan() {
  if (!replay_.live()) return;
  NegotiatedSet& world = sets_.world();
  const std::size_t before = actions_.executes.size();
  replay_.poll(now_, max_plan_batches - world.unfinished, actions_.executes);
  const int begun = static_cast<int>(actions_.executes.size() - before);
  world.unfinished += begun;
  unexecuted_ += begun;
  for (std::size_t i = before; i < actions_.executes.size(); ++i)
    actions_.executes[i].joins = joins_;
  if (replay_.over()) end_plan();
}

void Negotiator::find_upcoming() {
  // Prepare a batch only if it may start soon, when most batches before it are done.
  if (!replay_.live() || sets_.world().unfinished >= max_plan_batches) return;
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
