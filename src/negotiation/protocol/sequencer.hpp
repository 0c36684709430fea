// SPDX-License-Identifier: Apache-2.0
// Turns agreed operations into entries of the log. Used by the root only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_set>
#include <vector>

#include "base/settings.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

class Sequencer {
 public:
  /// `settings` outlives this object.
  explicit Sequencer(const Settings& settings) : settings_(settings) {}

  /// Adds an operation that all members of the key's set, except the absent ones, have submitted
  /// with the same descriptor. It waits for a batch.
  void agree(Key key, Descriptor descriptor, RankSet absent);

  /// Drops the waiting operations of a set, because their ranks have withdrawn them.
  void forget(SetId set) { agreed_.erase(set); }

  /// Drops everything about a removed set, whose keys never come again.
  void remove(SetId set) {
    forget(set);
    std::erase_if(agreed_once_, [set](const Key& key) { return key.set == set; });
  }

  /// Appends one batch of waiting operations of a set. False if none are waiting.
  bool append_batch(SetId set, const ResponseCache& cache);

  /// The sets with waiting operations.
  [[nodiscard]] std::vector<SetId> gathering() const;

  void append(EntryBody body);

  // Entries are taken in the order of the log.
  [[nodiscard]] bool has_entry() const { return !log_.empty(); }
  Entry take_entry();

 private:
  struct Agreed {
    std::uint64_t order;  // number of operations agreed before
    Key key;
    Descriptor descriptor;
    RankSet absent;
  };

  /// Operations that can be fused and have the same participants, or all operations that are never
  /// fused. Groups allow choosing a batch without examining all waiting operations.
  using Group = std::deque<Agreed>;

  [[nodiscard]] static bool belongs(const Agreed& one, const Group& group);
  std::vector<Agreed> take_batch(std::vector<Group>& groups) const;
  void add_member(Agreed agreed, const ResponseCache& cache, std::size_t& new_slots,
                  BatchEntry& batch);

  const Settings& settings_;
  std::map<SetId, std::vector<Group>> agreed_;  // contains no empty vectors or groups
  std::uint64_t next_order_ = 0;
  std::deque<Entry> log_;
  std::uint64_t next_sequence_ = 0;
  std::unordered_set<Key, KeyHash>
      agreed_once_;  // named keys that get a slot at their second agreement
};

}  // namespace kolo::internal::negotiation
