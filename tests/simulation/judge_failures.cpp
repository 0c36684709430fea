// SPDX-License-Identifier: Apache-2.0
// Compares the failures reported to ranks with the events that really happened.
#include <fmt/format.h>

#include <algorithm>

#include "base/session_clock.hpp"
#include "judge.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::simulation {

namespace {

/// The root asks, waits half a second, and speaks; messages take their time.
constexpr Time max_inquiry = std::chrono::seconds(1);

}  // namespace

void Judge::on_fail(int rank, const negotiation::Fail& fail, Time now) {
  const Ledger::Submission& own = pending(rank, fail.ticket, "failed");
  const Key& key = ledger_.key(own.key);
  if (fail.failure.tensor != key.name)
    throw Violation("error", fmt::format("{} failed with an error about \"{}\"",
                                         name(rank, fail.ticket), fail.failure.tensor));
  switch (fail.failure.kind) {
    case FailureKind::mismatch: check_mismatch(rank, fail); break;
    case FailureKind::peer_left:
    case FailureKind::stalled: check_cause(rank, fail, now); break;
    case FailureKind::shut_down:
      if (fail.failure.message.find("the process set was removed") != std::string::npos) {
        check_removal(rank, fail);
      } else if (!fail.failure.ranks.empty()) {
        check_cause(rank, fail, now);
      }
      break;
    case FailureKind::backend: throw Violation("error", "the negotiation has no backend");
  }
  if (fail.failure.kind != FailureKind::mismatch && at(rank).promised.contains(fail.ticket))
    throw Violation("error",
                    fmt::format("{}: \"{}\", but others were told: \"{}\"", name(rank, fail.ticket),
                                fail.failure.message, at(rank).promised.at(fail.ticket)));
  if (descriptor(own.operation).type == OperationType::join) at(rank).join_failed = true;
  ledger_.settle(rank, fail.ticket, Ledger::State::failed);
  ++answers_;
  ++failures_;
}

/// The pending operations of these ranks under `key`, or the first rank without one.
std::variant<negotiation::Readiness, int> Judge::submitted(KeyNumber key,
                                                           const RankSet& ranks) const {
  negotiation::Readiness readiness{ledger_.key(key), {}};
  for (const int rank : ranks.to_vector()) {
    const auto ticket = ledger_.pending(rank, key);
    if (!ticket) return rank;
    const Descriptor& form = descriptor(ledger_.find(rank, *ticket)->operation);
    const auto known =
        std::ranges::find(readiness.variants, form, &negotiation::Variant::descriptor);
    if (known != readiness.variants.end()) {
      known->ranks.insert(RankSet::of(rank));
    } else {
      readiness.variants.push_back({form, RankSet::of(rank)});
    }
  }
  return readiness;
}

/// The first to be told: all whom it concerns still have it pending, and must be told the same.
void Judge::check_mismatch(int rank, const negotiation::Fail& fail) {
  RankState& state = at(rank);
  const Failure& failure = fail.failure;
  const auto refuse = [&](const std::string& why) {
    throw Violation("error",
                    fmt::format("{}: \"{}\", {}", name(rank, fail.ticket), failure.message, why));
  };
  const auto promise = state.promised.find(fail.ticket);
  if (promise != state.promised.end()) {
    if (promise->second != failure.message) refuse("but others were told: " + promise->second);
    state.promised.erase(promise);
    return;
  }
  const KeyNumber key = ledger_.find(rank, fail.ticket)->key;
  const RankSet& members = sets_.at(ledger_.key(key).set);
  // A rank that disagrees with others is named in the failure. A rank that asks for something
  // impossible is not; the failure names the absent ranks.
  const bool disagreement = failure.ranks.contains(rank);
  const RankSet concerned = disagreement ? failure.ranks : members.without(failure.ranks);
  const RankSet absent = members.without(concerned);
  for (const int one : absent.to_vector())
    if (!at(one).joins) refuse(fmt::format("but rank {} takes part, and is left out", one));
  const auto found = submitted(key, concerned);
  if (const int* one = std::get_if<int>(&found))
    refuse(fmt::format("but rank {} has not submitted it", *one));
  const auto& really = std::get<negotiation::Readiness>(found);
  if (really.disagrees() != disagreement) refuse("but it is not so");
  // With more forms than are told apart, who is listed how depends on who came first.
  if (really.variants.size() <= negotiation::max_variants) {
    const Failure expected = disagreement ? negotiation::explain_mismatch(really)
                                          : negotiation::explain_absence(really, absent);
    if (expected.message != failure.message || expected.ranks != failure.ranks)
      refuse("expected: " + expected.message);
  }
  for (const int one : concerned.to_vector())
    if (one != rank) at(one).promised.emplace(*ledger_.pending(one, key), failure.message);
}

/// A rank whose join has failed is told the cause of the world's failure, for any process set.
bool Judge::is_cause_of_world(int rank, const Failure& failure) const {
  const auto cause = causes_.find(world_set);
  return ranks_[static_cast<std::size_t>(rank)].join_failed && cause != causes_.end() &&
         cause->second.kind == failure.kind && cause->second.ranks == failure.ranks;
}

/// The first cause is told to all, and is true.
void Judge::check_removal(int rank, const negotiation::Fail& fail) {
  const SetId set = ledger_.key(ledger_.find(rank, fail.ticket)->key).set;
  if (fail.failure.ranks != sets_.at(set))
    throw Violation("error",
                    fmt::format("{}: \"{}\", but its set had ranks {}", name(rank, fail.ticket),
                                fail.failure.message, to_string(sets_.at(set))));
}

void Judge::check_cause(int rank, const negotiation::Fail& fail, Time now) {
  const Failure& failure = fail.failure;
  const KeyNumber key = ledger_.find(rank, fail.ticket)->key;
  const SetId set = ledger_.key(key).set;
  if (is_cause_of_world(rank, failure)) {
    const Time at = ledger_.find(rank, fail.ticket)->at;
    const auto [told, is_first] = told_as_cause_of_world_.try_emplace(key, at);
    told->second = std::min(told->second, at);
    return;
  }
  FailureKind kind = failure.kind;
  if (kind == FailureKind::shut_down) {
    if (failure.ranks != RankSet::of(rank))
      throw Violation("error", fmt::format("{}: \"{}\" names rank {}", name(rank, fail.ticket),
                                           failure.message, to_string(failure.ranks)));
    kind = FailureKind::peer_left;
  } else if (kind == FailureKind::peer_left && failure.ranks == RankSet::of(rank)) {
    throw Violation("error", name(rank, fail.ticket) + " is told that it has left itself");
  }
  const auto [found, is_new] = causes_.try_emplace(set, Cause{kind, failure.ranks});
  Cause& cause = found->second;
  if (cause.kind != kind || cause.ranks != failure.ranks)
    throw Violation("error",
                    fmt::format("{}: \"{}\", but others were told of ranks {}",
                                name(rank, fail.ticket), failure.message, to_string(cause.ranks)));
  if (is_new && kind == FailureKind::peer_left) {
    const int leaver = failure.ranks.to_vector().front();
    if (failure.ranks.count() != 1 || !at(leaver).left || !sets_.at(set).contains(leaver))
      throw Violation("error", fmt::format("{}: \"{}\", but it did not leave this set",
                                           name(rank, fail.ticket), failure.message));
  }
  if (kind != FailureKind::stalled || cause.verified) return;
  if (failure.message.find(": not submitted by ") == std::string::npos) return;
  cause.verified = true;
  // Behind a rank that is dead the root cannot ask anybody.
  if (std::ranges::any_of(ranks_, &RankState::lost)) return;
  check_age(key, now);
  check_stall(key, failure.ranks, now);
}

/// The limit must have passed since the first submission. Of each pause, clocks count a part.
void Judge::check_age(KeyNumber key, Time now) const {
  const auto told = told_as_cause_of_world_.find(key);
  Time first = told == told_as_cause_of_world_.end() ? now : told->second;
  for (int rank = 0; rank < program_.ranks(); ++rank)
    if (const auto ticket = ledger_.pending(rank, key))
      first = std::min(first, ledger_.find(rank, *ticket)->at);
  const Time counted = static_cast<int>(program_.pauses.size()) * SessionClock::max_step;
  if (now - first + counted < program_.settings.stall_shutdown)
    throw Violation(
        "error", fmt::format("{} is said to be late, but is {} ms old", to_string(ledger_.key(key)),
                             (now - first).count() / 1000000));
}

/// A named rank must not have submitted the operation when the root asked, unless a rank between
/// them may have been stopped and not have answered. Other ranks must have submitted it or have
/// joined.
void Judge::check_stall(KeyNumber key, const RankSet& missing, Time now) const {
  // The root asks for a second in which nobody between them is stopped.
  Time asked = now - max_inquiry;
  bool is_answered = true;
  std::vector<Pause> pauses = program_.pauses;
  std::ranges::sort(pauses, std::greater(), &Pause::at);
  for (const Pause& pause : pauses) {
    const Time end = std::min(now, pause.at + pause.length);
    if (pause.at > now || end < asked) continue;
    is_answered = is_answered && pause.rank == Pause::all;
    asked -= end - std::max(asked, pause.at);
  }
  for (const int rank : sets_.at(ledger_.key(key).set).to_vector()) {
    const auto ticket = ledger_.pending(rank, key);
    const bool named = missing.contains(rank);
    const std::string what = to_string(ledger_.key(key));
    if (is_answered && named && ticket && ledger_.find(rank, *ticket)->at < asked)
      throw Violation("error",
                      fmt::format("rank {} is said to miss {}, but had submitted it", rank, what));
    if (!named && !ticket && !ranks_[static_cast<std::size_t>(rank)].joins)
      throw Violation("error", fmt::format("rank {} misses {}, but was not named", rank, what));
  }
}

}  // namespace kolo::internal::simulation
