// SPDX-License-Identifier: Apache-2.0
// Late operations: the root asks, one rank per host answers for its ranks, and the root reports.
#include <algorithm>

#include "negotiation/protocol/negotiator.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::negotiation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How long the root gathers answers about a late key before it reports the key.
constexpr milliseconds time_to_answer{500};

/// Statuses that one host sends.
constexpr std::size_t max_answers = 64;

/// While ranks of several hosts may wait for each other, the root asks at doubling intervals.
constexpr seconds min_deadlock_probe_backoff{1};
constexpr seconds max_deadlock_probe_backoff{64};

bool lists(const RankStatus& status, const std::vector<Key>& keys) {
  return std::ranges::any_of(status.operations, [&](const WaitingOperation& operation) {
    return std::ranges::find(keys, operation.key) != keys.end();
  });
}

const Key& key_of(const StalledGroup& late) { return late.lags.front().key; }

/// True if no rank waits any more for one of the blockade's operations.
bool has_gone_on(const Blockade& blockade, const Statuses& statuses) {
  return std::ranges::any_of(blockade.operations, [&](const StalledGroup& late) {
    return std::ranges::none_of(
        statuses, [&](const auto& status) { return lists(status.second, {key_of(late)}); });
  });
}

/// True if `part` is `whole` or less: a blocked rank may seem to run for a moment, while one of its
/// threads wakes.
bool is_part(const Blockade& part, const Blockade& whole) {
  return part.ranks.without(whole.ranks).empty() &&
         std::ranges::all_of(part.operations, [&](const StalledGroup& late) {
           return std::ranges::find(whole.operations, key_of(late), key_of) !=
                  whole.operations.end();
         });
}

}  // namespace

void Negotiator::report_late_operations() {
  const std::chrono::nanoseconds warning = options_.stall_warning;
  const std::chrono::nanoseconds shutdown = options_.stall_shutdown;
  if (is_root()) {
    const bool giving_up = std::ranges::any_of(
        inquiries_, [](const Inquiry& inquiry) { return inquiry.purpose == Purpose::end; });
    if (warning.count() != 0)
      for (auto& [id, set] : sets_)
        for (const Lag& lag : set.tally.late(warning, now_)) inquire(lag.key, Purpose::warn);
    if (giving_up) return;
    if (shutdown.count() != 0) give_up_overdue();
    inquire_about_late_joins();
    return;
  }
  // The root needs the report before the earlier of its two limits.
  const auto age = warning.count() == 0    ? shutdown
                   : shutdown.count() == 0 ? warning
                                           : std::min(warning, shutdown);
  if (age.count() == 0) return;
  for (auto& [id, set] : sets_)
    for (Lag& lag : set.tally.late(age, now_)) outgoing_report().lags.push_back(std::move(lag));
}

/// One key of each process set, the oldest first.
void Negotiator::give_up_overdue() {
  std::vector<Tally::Overdue> overdue;
  for (const auto& [id, set] : sets_)
    if (auto one = set.tally.overdue(options_.stall_shutdown, now_))
      overdue.push_back(std::move(*one));
  std::ranges::sort(overdue, {}, &Tally::Overdue::since);
  for (const Tally::Overdue& one : overdue) inquire(one.lag.key, Purpose::end);
}

/// A join may wait for long while the other ranks work. It is late when no batch has run for a
/// while.
void Negotiator::inquire_about_late_joins() {
  const std::optional<Lag> lag = join_lag();
  if (!lag) return;
  const std::chrono::nanoseconds warning = options_.stall_warning;
  if (options_.stall_shutdown.count() != 0 && lag->waited >= options_.stall_shutdown) {
    inquire(lag->key, Purpose::end);
  } else if (warning.count() != 0 && lag->waited >= warning &&
             now_ - asked_about_joins_ >= warning) {
    asked_about_joins_ = now_;
    inquire(lag->key, Purpose::warn);
  }
}

std::optional<Lag> Negotiator::join_lag() const {
  // A departure or a stall has answered all joins, although the ranks still count as joined.
  if (joined_.empty() || sets_.at(world_set).broken) return std::nullopt;
  const auto waited = now_ - std::max(joined_since_, active_at_);
  std::optional<Lag> lag(std::in_place);
  lag->key.number = join_number;
  lag->type = OperationType::join;
  lag->submitted = RankSet::of(joined_);
  lag->waited = std::chrono::duration_cast<milliseconds>(waited);
  return lag;
}

std::optional<Lag> Negotiator::lag_of(const Key& key) {
  if (key.number == join_number) return join_lag();
  const Set* set = find(key.set);
  return set == nullptr ? std::nullopt : set->tally.lag(key, now_);
}

void Negotiator::inquire(const Key& key, Purpose purpose) {
  inquiries_.push_back({key, purpose, now_});
  append(InquiryEntry{key});
}

void Negotiator::apply(const InquiryEntry& entry) {
  actions_.questions.push_back(entry.key);
  const Set* set = find(entry.key.set);
  if (is_root() || set == nullptr) return;
  if (std::optional<Lag> lag = set->tally.lag(entry.key, now_))
    outgoing_report().lags.push_back(std::move(*lag));
}

void Negotiator::on_answer(const std::vector<Key>& questions, std::vector<RankStatus> statuses) {
  // If there are too many statuses, those of ranks that have not submitted the keys come first.
  std::stable_partition(statuses.begin(), statuses.end(),
                        [&](const RankStatus& status) { return !lists(status, questions); });
  if (statuses.size() > max_answers) statuses.resize(max_answers);
  for (RankStatus& status : statuses) pass_status(std::move(status));
}

void Negotiator::pass_status(RankStatus status) {
  if (is_root()) {
    statuses_[status.rank] = std::move(status);
  } else {
    outgoing_report().statuses.push_back(std::move(status));
  }
}

void Negotiator::on_blocked(const std::vector<RankStatus>& host) {
  if (!is_root() || replay_.live()) return;
  for (const RankStatus& status : host) statuses_[status.rank] = status;
  if (static_cast<int>(host.size()) == place_.ranks) return report_deadlocks();
  if (!std::ranges::all_of(host, &RankStatus::blocked)) {
    deadlock_probe_backoff_ = min_deadlock_probe_backoff;
    return;
  }
  if (now_ < next_deadlock_probe_ || !inquiries_.empty()) return;
  for (const auto& [id, set] : sets_) {
    const std::optional<Tally::Overdue> pending = set.tally.overdue({}, now_);
    if (!pending) continue;
    next_deadlock_probe_ = now_ + deadlock_probe_backoff_;
    deadlock_probe_backoff_ =
        std::min<std::chrono::nanoseconds>(2 * deadlock_probe_backoff_, max_deadlock_probe_backoff);
    return inquire(pending->lag.key, Purpose::compare);
  }
}

void Negotiator::report_deadlocks() {
  const auto members_of = [&](SetId id) {
    const auto set = sets_.find(id);
    return set == sets_.end() ? RankSet() : set->second.members;
  };
  if (has_gone_on(reported_deadlock_, statuses_)) reported_deadlock_ = {};
  std::optional<Blockade> found = find_deadlock(statuses_, members_of);
  if (!found || is_part(*found, reported_deadlock_)) return;
  actions_.reports.push_back(report_deadlock(*found, statuses_));
  reported_deadlock_ = std::move(*found);
}

void Negotiator::conclude_inquiries() {
  std::vector<StalledGroup> late;
  bool concluded = false;
  for (Inquiry& inquiry : std::exchange(inquiries_, {})) {
    if (now_ - inquiry.asked < time_to_answer) {
      inquiries_.push_back(std::move(inquiry));
      continue;
    }
    concluded = true;
    const std::optional<Lag> lag = lag_of(inquiry.key);
    const bool ends = inquiry.purpose == Purpose::end;
    const auto age = ends ? options_.stall_shutdown : options_.stall_warning;
    // The key may have completed meanwhile, and may have been submitted again.
    if (!lag || lag->waited < age || inquiry.purpose == Purpose::compare) continue;
    RankSet missing = sets_.at(lag->key.set).tally.expected().without(lag->submitted);
    if (ends) {
      append_all_batches();
      append(StallEntry{*lag, missing, describe(missing, statuses_, lag->key)});
    } else {
      gather_late(late, *lag, std::move(missing));
    }
  }
  // An operation that most ranks wait for is most likely the right one.
  std::ranges::stable_sort(late, std::greater<>(), [](const StalledGroup& ones) {
    return ones.lags.front().submitted.count();
  });
  for (StalledGroup& ones : late) report_group(ones);
  if (!concluded || !inquiries_.empty()) return;
  if (static_cast<int>(statuses_.size()) == place_.ranks) report_deadlocks();
  statuses_.clear();
}

/// Operations that wait for the same ranks are reported together.
void Negotiator::gather_late(std::vector<StalledGroup>& late, const Lag& lag, RankSet missing) {
  for (StalledGroup& ones : late) {
    if (ones.missing != missing || ones.lags.front().key.set != lag.key.set) continue;
    ones.lags.push_back(lag);
    return;
  }
  late.push_back({{lag}, std::move(missing)});
}

/// Reports the group unless each of its operations was reported before with the same text.
void Negotiator::report_group(StalledGroup& late) {
  Set& set = sets_.at(late.lags.front().key.set);
  std::ranges::stable_sort(late.lags, std::greater<>(), &Lag::waited);
  bool is_new = false;
  for (const Lag& lag : late.lags) {
    const Readiness* const known = set.tally.known(lag.key);
    StalledGroup one{{lag}, late.missing, known != nullptr ? differences(*known) : ""};
    if (&lag == &late.lags.front()) late.conflict = one.conflict;
    std::string text = report_late(one, statuses_, /*times=*/false);
    is_new |= lag.type == OperationType::join ? std::exchange(reported_join_, text) != text
                                              : set.tally.record_report(lag.key, std::move(text));
  }
  if (is_new) actions_.reports.push_back(report_late(late, statuses_));
}

}  // namespace kolo::internal::negotiation
