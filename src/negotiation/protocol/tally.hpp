// SPDX-License-Identifier: Apache-2.0
// Counts the members in a subtree that have submitted each key of one process set, and compares
// their descriptors.
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
  /// `below`: the members of the set in the subtree. A key is complete when each of them has
  /// submitted it or has joined.
  explicit Tally(RankSet below);

  /// Adds submissions of some ranks. Once the key is complete, removes it and returns all its
  /// submissions. Throws ProtocolError if a key gets more submissions than there are ranks.
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

  /// Adds ranks that have submitted the key in a subtree that is not complete. Only late keys are
  /// reported this way, and the ranks do not count toward completion.
  void add(const Lag& lag, TimePoint now);

  /// The ranks known to have submitted `key`; none if the key is not pending.
  [[nodiscard]] std::optional<Lag> lag(const Key& key, TimePoint now) const;

  /// Keys that have been pending for `age` and that this function has not returned within the last
  /// `age`. Each call must pass the same `age`.
  [[nodiscard]] std::vector<Lag> late(std::chrono::nanoseconds age, TimePoint now);

  struct Overdue {
    Lag lag;
    TimePoint since;
  };
  /// The most urgent key that has been pending for `age`; none if there is none. Of the keys that
  /// are about as old as the oldest, it is the one that most ranks have submitted, and of those the
  /// oldest.
  [[nodiscard]] std::optional<Overdue> overdue(std::chrono::nanoseconds age, TimePoint now) const;

  /// The submissions of the key whose descriptors are known; null if there are none.
  [[nodiscard]] const Readiness* known(const Key& key) const;

  /// Records the text of a report about the key. False if the last report had the same text or the
  /// key is not pending.
  bool record_report(const Key& key, std::string text);

  [[nodiscard]] bool empty() const { return pending_.empty(); }
  void add_keys(std::vector<Key>& keys) const {
    for (const auto& [key, pending] : pending_) keys.push_back(key);
  }
  void clear() { pending_.clear(); }

 private:
  struct Pending {
    Readiness so_far;
    int count = 0;
    OperationType type = OperationType::barrier;
    RankSet lagging;  // submitters known only from Lag messages
    TimePoint since;
    std::optional<TimePoint> reported;
    std::string last_report{};
  };

  Pending& find(const Key& key, OperationType type, TimePoint now);
  std::optional<Readiness> complete(const Key& key, Pending& pending);
  /// True if all members below are submitters, whether or not they have joined.
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
