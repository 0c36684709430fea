// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/stall_inspector.hpp"

#include <algorithm>

#include "negotiation/stall/explain.hpp"

namespace kolo::internal::negotiation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The time for which the root gathers answers about a late key.
constexpr milliseconds time_to_answer{500};

/// The age at which answers about a batch are no longer used.
constexpr seconds max_age_of_answers{1};

/// Limits of the interval between inquiries about a possible deadlock across hosts. The interval
/// doubles with each inquiry, so that a long wait causes few inquiries.
constexpr seconds min_deadlock_probe_backoff{1};
constexpr seconds max_deadlock_probe_backoff{64};

const Key& key_of(const StalledGroup& late) { return late.lags.front().key; }

/// True if the blockade has an operation that no rank waits for any more.
bool has_gone_on(const Blockade& blockade, const Statuses& statuses) {
  return std::ranges::any_of(blockade.operations, [&](const StalledGroup& late) {
    return std::ranges::none_of(
        statuses, [&](const auto& status) { return status.second.lists(key_of(late)); });
  });
}

/// True if `whole` contains all ranks and operations of `part`. A blocked rank may seem to run for
/// a moment while one of its threads wakes, so the same deadlock may be found with fewer ranks.
bool is_part(const Blockade& part, const Blockade& whole) {
  return part.ranks.without(whole.ranks).empty() &&
         std::ranges::all_of(part.operations, [&](const StalledGroup& late) {
           return std::ranges::find(whole.operations, key_of(late), key_of) !=
                  whole.operations.end();
         });
}

}  // namespace

void StallInspector::on_time(TimePoint now) {
  now_ = now;
  conclude_inquiries();
  const bool gives_up = std::ranges::any_of(
      inquiries_, [](const Inquiry& inquiry) { return inquiry.purpose == Purpose::end; });
  inquire_about_late_operations();
  if (gives_up) return;
  inquire_about_overdue_operations();
  inquire_about_late_joins();
}

void StallInspector::on_first_join(TimePoint now) {
  joined_since_ = asked_about_joins_ = now;
  last_join_report_.clear();
}

void StallInspector::inquire(const Key& key, Purpose purpose) {
  inquiries_.push_back({key, purpose, now_});
  append_(InquiryEntry{key});
}

void StallInspector::inquire_about_late_operations() {
  if (settings_.stall_warning.count() == 0) return;
  for (auto& [id, set] : sets_)
    for (const Lag& lag : set.tally.late(settings_.stall_warning, now_))
      inquire(lag.key, Purpose::warn);
}

/// Asks about one overdue key of each process set, the oldest key first.
void StallInspector::inquire_about_overdue_operations() {
  if (settings_.stall_shutdown.count() == 0) return;
  std::vector<Tally::Overdue> overdue;
  for (const auto& [id, set] : sets_)
    if (auto one = set.tally.overdue(settings_.stall_shutdown, now_))
      overdue.push_back(std::move(*one));
  std::ranges::sort(overdue, {}, &Tally::Overdue::since);
  for (const Tally::Overdue& one : overdue) inquire(one.lag.key, Purpose::end);
}

/// A join may wait long while the other ranks work. So it is late only if no batch was appended for
/// a while.
void StallInspector::inquire_about_late_joins() {
  const std::optional<Lag> lag = join_lag();
  if (!lag) return;
  const std::chrono::nanoseconds warning = settings_.stall_warning;
  if (settings_.stall_shutdown.count() != 0 && lag->waited >= settings_.stall_shutdown) {
    inquire(lag->key, Purpose::end);
  } else if (warning.count() != 0 && lag->waited >= warning &&
             now_ - asked_about_joins_ >= warning) {
    asked_about_joins_ = now_;
    inquire(lag->key, Purpose::warn);
  }
}

std::optional<Lag> StallInspector::join_lag() const {
  // A departure or a stall has failed all joins, although the ranks still count as joined.
  if (sets_.joined().empty() || sets_.world().broken) return std::nullopt;
  const auto waited = now_ - std::max(joined_since_, active_at_);
  std::optional<Lag> lag(std::in_place);
  lag->key.number = join_number;
  lag->type = OperationType::join;
  lag->submitted = RankSet::of(sets_.joined());
  lag->waited = std::chrono::duration_cast<milliseconds>(waited);
  return lag;
}

std::optional<Lag> StallInspector::lag_of(const Key& key) {
  if (key.number == join_number) return join_lag();
  const NegotiatedSet* set = sets_.find(key.set);
  return set == nullptr ? std::nullopt : set->tally.lag(key, now_);
}

void StallInspector::on_blocked(const std::vector<RankStatus>& host, TimePoint now) {
  now_ = now;
  for (const RankStatus& status : host) statuses_[status.rank] = status;
  if (static_cast<int>(host.size()) == ranks_) return report_deadlocks();
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

const Statuses* StallInspector::ask_about_batch(const Key& key, TimePoint now) {
  now_ = now;
  if (answered_at_ != TimePoint{} && now_ - answered_at_ < max_age_of_answers) return &about_batch_;
  const bool asks = std::ranges::any_of(
      inquiries_, [](const Inquiry& inquiry) { return inquiry.purpose == Purpose::batch; });
  if (!asks) inquire(key, Purpose::batch);
  return nullptr;
}

void StallInspector::report_deadlocks() {
  if (has_gone_on(last_reported_blockade_, statuses_)) last_reported_blockade_ = {};
  std::optional<Blockade> found =
      find_deadlock(statuses_, [&](SetId id) { return sets_.members_of(id); });
  if (!found || is_part(*found, last_reported_blockade_)) return;
  reports_.push_back(report_deadlock(*found, statuses_));
  last_reported_blockade_ = std::move(*found);
}

void StallInspector::conclude_inquiries() {
  std::vector<StalledGroup> late;
  bool concluded = false;
  for (Inquiry& inquiry : std::exchange(inquiries_, {})) {
    if (now_ - inquiry.asked < time_to_answer) {
      inquiries_.push_back(std::move(inquiry));
      continue;
    }
    concluded = true;
    if (inquiry.purpose == Purpose::batch) {
      about_batch_ = statuses_;
      answered_at_ = now_;
      continue;
    }
    const std::optional<Lag> lag = lag_of(inquiry.key);
    const bool ends = inquiry.purpose == Purpose::end;
    const auto age = ends ? settings_.stall_shutdown : settings_.stall_warning;
    // The key may have completed meanwhile and may even have been submitted again.
    if (!lag || lag->waited < age || inquiry.purpose == Purpose::compare) continue;
    RankSet missing = sets_.at(lag->key.set).tally.expected().without(lag->submitted);
    if (ends) {
      append_(
          StallEntry{*lag, culprits(missing, statuses_), describe(missing, statuses_, lag->key)});
    } else {
      gather_late(late, *lag, std::move(missing));
    }
  }
  report_groups(std::move(late));
  if (!concluded || !inquiries_.empty()) return;
  if (static_cast<int>(statuses_.size()) == ranks_) report_deadlocks();
  statuses_.clear();
}

/// Adds a late operation to the group of its process set that waits for the same ranks.
void StallInspector::gather_late(std::vector<StalledGroup>& late, const Lag& lag, RankSet missing) {
  for (StalledGroup& ones : late) {
    if (ones.missing != missing || ones.lags.front().key.set != lag.key.set) continue;
    ones.lags.push_back(lag);
    return;
  }
  late.push_back({{lag}, std::move(missing)});
}

/// Reports operations with the most waiting ranks first, because the minority most likely made the
/// mistake.
void StallInspector::report_groups(std::vector<StalledGroup> late) {
  std::ranges::stable_sort(late, std::greater<>(), [](const StalledGroup& ones) {
    return ones.lags.front().submitted.count();
  });
  for (StalledGroup& ones : late) report_group(ones);
}

/// Reports the group unless each of its operations was already reported with the same text.
void StallInspector::report_group(StalledGroup& late) {
  NegotiatedSet& set = sets_.at(late.lags.front().key.set);
  std::ranges::stable_sort(late.lags, std::greater<>(), &Lag::waited);
  bool is_new = false;
  for (const Lag& lag : late.lags) {
    const Readiness* const known = set.tally.known(lag.key);
    StalledGroup one{{lag}, late.missing, known != nullptr ? differences(*known) : ""};
    if (&lag == &late.lags.front()) late.conflict = one.conflict;
    std::string text = report_late(one, statuses_, /*times=*/false);
    is_new |= lag.type == OperationType::join ? std::exchange(last_join_report_, text) != text
                                              : set.tally.record_report(lag.key, std::move(text));
  }
  if (is_new) reports_.push_back(report_late(late, statuses_));
}

}  // namespace kolo::internal::negotiation
