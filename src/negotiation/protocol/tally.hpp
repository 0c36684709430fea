// Counts, for each key of one process set, which members below a place have submitted it and with
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
  /// `below`: the members that must submit a key, or have joined, until it is complete.
  explicit Tally(RankSet below);

  /// Adds what some ranks submitted. Returns the whole, and forgets it, once it is complete.
  /// Throws ProtocolError if a key gets more submissions than there are ranks.
  std::optional<Readiness> add(const Readiness& readiness, TimePoint now);
  std::optional<Readiness> add(const Key& key, const Descriptor& descriptor, const RankSet& ranks,
                               TimePoint now);

  /// From now on the rank counts as having submitted every key. Returns what is complete by that.
  [[nodiscard]] std::vector<Readiness> join(int rank);
  /// Nobody counts as joined any more.
  void release_joined();
  /// The members below that have not joined.
  [[nodiscard]] const RankSet& expected() const { return expected_; }

  /// Ranks that have submitted although their own subtree is not complete yet: known only for keys
  /// that are late.
  void add(const Lag& lag, TimePoint now);

  /// What is known of `key`, if it is pending.
  [[nodiscard]] std::optional<Lag> lag(const Key& key, TimePoint now) const;

  /// Keys that have been pending for `age` and were not returned before within `age`.
  [[nodiscard]] std::vector<Lag> late(std::chrono::nanoseconds age, TimePoint now);

  struct Overdue {
    Lag lag;
    TimePoint since;
  };
  /// The oldest of the keys that have been pending for `age`. Of several that are about as old, the
  /// one that most ranks wait for, then the oldest.
  [[nodiscard]] std::optional<Overdue> overdue(std::chrono::nanoseconds age, TimePoint now) const;

  /// What those have submitted of which it is known how; null if `key` is not pending.
  [[nodiscard]] const Readiness* known(const Key& key) const;

  /// `what` is told about the key. False if that was told last, too, or the key is not pending.
  bool tell(const Key& key, std::string what);

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
    std::string told{};
  };

  Pending& find(const Key& key, OperationType type, TimePoint now);
  std::optional<Readiness> complete(const Key& key, Pending& pending);
  [[nodiscard]] bool is_complete(const Pending& pending) const;
  static Lag lag_of(const Key& key, const Pending& pending, TimePoint now);

  RankSet below_;
  int below_count_;
  RankSet expected_;
  RankSet joined_;
  std::unordered_map<Key, Pending, KeyHash> pending_;
};

}  // namespace kolo::internal::negotiation
