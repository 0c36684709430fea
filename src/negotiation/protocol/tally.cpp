// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/tally.hpp"

#include <algorithm>
#include <utility>

#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

/// Keys whose ages differ by less than this count as equally old: ranks that run the same code
/// rarely submit an operation further apart.
constexpr std::chrono::milliseconds same_time{100};

void merge(Readiness& into, const Variant& variant) {
  for (Variant& known : into.variants) {
    if (known.descriptor == variant.descriptor) {
      known.ranks.insert(variant.ranks);
      return;
    }
  }
  if (into.variants.size() < max_variants) {
    into.variants.push_back(variant);
  } else {
    into.others.insert(variant.ranks);
  }
}

}  // namespace

Tally::Tally(RankSet below)
    : below_(std::move(below)), below_count_(below_.count()), expected_(below_) {}

Tally::Pending& Tally::find(const Key& key, OperationType type, TimePoint now) {
  const auto [found, is_new] = pending_.try_emplace(key);
  Pending& pending = found->second;
  if (is_new) {
    pending.so_far.key = key;
    pending.type = type;
    pending.since = now;
  }
  return pending;
}

bool Tally::has_all(const Readiness& readiness) const {
  if (!readiness.disagrees()) return readiness.variants.front().ranks == below_;  // the usual case
  return readiness.submitters() == below_;
}

bool Tally::is_complete(const Pending& pending) const {
  if (joined_.empty() || pending.count == below_count_) return pending.count >= below_count_;
  return expected_.without(pending.so_far.submitters()).empty();
}

std::optional<Readiness> Tally::complete(const Key& key, Pending& pending) {
  // Invariant: a rank submits a key at most once until the key is answered. Counting relies on
  // this, since a second submission would complete a key that another rank has not submitted.
  if (pending.count > below_count_)
    throw ProtocolError(to_string(key) + " was submitted by more ranks than there are");
  if (pending.count == below_count_ && !has_all(pending.so_far))
    throw ProtocolError(to_string(key) +
                        " was submitted twice by a rank, or by one of another set");
  if (!is_complete(pending)) return std::nullopt;
  std::optional<Readiness> whole = std::move(pending.so_far);
  pending_.erase(key);
  return whole;
}

std::vector<Readiness> Tally::join(int rank) {
  if (!below_.contains(rank)) return {};
  joined_.insert(RankSet::of(rank));
  expected_ = below_.without(joined_);
  std::vector<Readiness> complete;
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    // A key that is known only from a Lag has count 0 and no submissions to return.
    if (pending->second.count > 0 && is_complete(pending->second)) {
      complete.push_back(std::move(pending->second.so_far));
      pending = pending_.erase(pending);
    } else {
      ++pending;
    }
  }
  return complete;
}

void Tally::release_joined() {
  joined_ = {};
  expected_ = below_;
}

std::optional<Readiness> Tally::add(const Readiness& readiness, TimePoint now) {
  const Key key = readiness.key;
  Pending& pending = find(key, readiness.variants.front().descriptor.type, now);
  for (const Variant& variant : readiness.variants) {
    pending.count += variant.ranks.count();
    merge(pending.so_far, variant);
  }
  pending.count += readiness.others.count();
  pending.so_far.others.insert(readiness.others);
  return complete(key, pending);
}

std::optional<Readiness> Tally::add(const Key& key, const Descriptor& descriptor,
                                    const RankSet& ranks, TimePoint now) {
  Pending& pending = find(key, descriptor.type, now);
  pending.count += ranks.count();
  merge(pending.so_far, {descriptor, ranks});
  return complete(key, pending);
}

void Tally::add(const Lag& lag, TimePoint now) {
  Pending& pending = find(lag.key, lag.type, now);
  pending.lagging.insert(lag.submitted);
  const TimePoint since = now - lag.waited;
  if (since >= pending.since) return;
  pending.since = since;
  next_late_ = {};  // the key may be late already
}

std::optional<Lag> Tally::lag(const Key& key, TimePoint now) const {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return std::nullopt;
  return lag_of(key, found->second, now);
}

std::vector<Lag> Tally::late(std::chrono::nanoseconds age, TimePoint now) {
  std::vector<Lag> late;
  // Return early: this runs often, while many thousands of keys may be pending.
  if (now < next_late_) return late;
  next_late_ = now + age;  // the earliest time for keys that are added later
  for (auto& [key, pending] : pending_) {
    const TimePoint next = std::max(pending.since, pending.reported.value_or(pending.since)) + age;
    if (next > now) {
      next_late_ = std::min(next_late_, next);
      continue;
    }
    pending.reported = now;
    late.push_back(lag_of(key, pending, now));
  }
  return late;
}

std::optional<Tally::Overdue> Tally::overdue(std::chrono::nanoseconds age, TimePoint now) const {
  TimePoint oldest = now - age;
  for (const auto& [key, pending] : pending_) oldest = std::min(oldest, pending.since);
  const TimePoint latest = std::min(now - age, oldest + same_time);
  std::optional<Overdue> first;
  for (const auto& [key, pending] : pending_) {
    if (pending.since > latest) continue;
    Overdue next{lag_of(key, pending, now), pending.since};
    const auto waiting = [](const Overdue& one) { return -one.lag.submitted.count(); };
    if (!first || std::pair(waiting(next), next.since) < std::pair(waiting(*first), first->since))
      first = std::move(next);
  }
  return first;
}

const Readiness* Tally::known(const Key& key) const {
  const auto found = pending_.find(key);
  return found == pending_.end() || found->second.so_far.variants.empty() ? nullptr
                                                                          : &found->second.so_far;
}

bool Tally::record_report(const Key& key, std::string text) {
  const auto found = pending_.find(key);
  return found != pending_.end() && std::exchange(found->second.last_report, text) != text;
}

Lag Tally::lag_of(const Key& key, const Pending& pending, TimePoint now) {
  Lag lag{key, pending.type, pending.lagging,
          std::chrono::duration_cast<std::chrono::milliseconds>(now - pending.since)};
  lag.submitted.insert(pending.so_far.submitters());
  return lag;
}

}  // namespace kolo::internal::negotiation
