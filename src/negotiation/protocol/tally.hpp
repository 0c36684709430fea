// SPDX-License-Identifier: Apache-2.0
// Counts, for each key of one process set, which members in a subtree have submitted it and with
// which descriptors.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

class Tally {
 public:
  /// `below`: a key is complete when each of these members has submitted it or has joined.
  explicit Tally(RankSet below);

  /// Adds submissions of some ranks. Returns all submissions of the key, and forgets it, once it is
  /// complete.
  /// Throws ProtocolError if a key gets more submissions than there are ranks.
  std::optional<Readiness> add(const Readiness& readiness, TimePoint now);
  std::optional<Readiness> add(const Key& key, const Descriptor& descriptor, const RankSet& ranks,
                               TimePoint now);

  /// From now on the rank counts as having submitted every key. Returns the keys that this
  /// completes.
  [[nodiscard]] std::vector<Readiness> join(int rank);
  /// No rank counts as joined any more.
  void release_joined();
  /// The members below that have not joined.
  [[nodiscard]] const RankSet& expected() const { return expected_; }

  /// Adds ranks that have submitted although their own subtree is not complete. Only late keys are
  /// reported that way; these ranks do not count toward completion.
  void add(const Lag& lag, TimePoint now);

  /// The ranks known to have submitted `key`; nothing unless it is pending.
  [[nodiscard]] std::optional<Lag> lag(const Key& key, TimePoint now) const;

  /// Keys that have been pending for `age` and were not returned before within `age`, which is the
  /// same in each call.
  [[nodiscard]] std::vector<Lag> late(std::chrono::nanoseconds age, TimePoint now);

  struct Overdue {
    Lag lag;
    TimePoint since;
  };
  /// The oldest of the keys that have been pending for `age`. Of several about as old, the one that
  /// most ranks wait for, then the oldest.
  [[nodiscard]] std::optional<Overdue> overdue(std::chrono::nanoseconds age, TimePoint now) const;

  /// The submissions whose descriptors are known; null if there are none.
  [[nodiscard]] const Readiness* known(const Key& key) const;

  /// Records the text of a report about the key. False if the last report had the same text, or if
  /// the key is not pending.
  bool record_report(const Key& key, std::string text);

  [[nodiscard]] bool empty() const { return pending_.empty(); }
  void clear() { pending_.clear(); }

 private:
  struct Pending {
    Readiness so_far;
    int count = 0;
    OperationType type = OperationType::barrier;
    RankSet lagging;  // beyond so_far, from Lag messages
    TimePoint since;
    std::optional<TimePoint> reported;
    std::string last_report{};
  };

  Pending& find(const Key& key, OperationType type, TimePoint now);
  std::optional<Readiness> complete(const Key& key, Pending& pending);
  /// True if the submitters are all members below, joined or not.
  [[nodiscard]] bool has_all(const Readiness& readiness) const;
  [[nodiscard]] bool is_complete(const Pending& pending) const;
  static Lag lag_of(const Key& key, const Pending& pending, TimePoint now);

  RankSet below_;
  int below_count_;
  RankSet expected_;
  RankSet joined_;
  std::unordered_map<Key, Pending, KeyHash> pending_;
  TimePoint next_late_{};  // no key is late before this time
};

}  // namespace kolo::internal::negotiation
