// SPDX-License-Identifier: Apache-2.0
// Used by the root: turns complete keys into entries of the log.
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
  /// `settings` outlives this.
  explicit Sequencer(const Settings& settings) : settings_(settings) {}

  /// All members of the key's set but the absent have submitted it alike. It waits for a batch.
  void agree(Key key, Descriptor descriptor, RankSet absent);

  /// The operations that wait in a set were withdrawn.
  void forget(SetId set) { agreed_.erase(set); }

  /// The set was removed: its names do not come again.
  void remove(SetId set) {
    forget(set);
    std::erase_if(agreed_once_, [set](const Key& key) { return key.set == set; });
  }

  /// Appends one batch of operations that wait in a set. False if none waits.
  bool append_batch(SetId set, const ResponseCache& cache);

  /// The sets in which operations wait.
  [[nodiscard]] std::vector<SetId> gathering() const;

  void append(EntryBody body);

  /// Entries are taken in the order of the log.
  [[nodiscard]] bool has_entry() const { return !log_.empty(); }
  Entry take_entry();

 private:
  struct Agreed {
    std::uint64_t order;  // in which they were agreed
    Key key;
    Descriptor descriptor;
    RankSet absent;
  };

  /// Operations that can travel together and have the same participants, or all that travel alone.
  /// In groups, a batch is chosen without a look at all that wait.
  using Group = std::deque<Agreed>;

  [[nodiscard]] static bool belongs(const Agreed& one, const Group& group);
  std::vector<Agreed> take_batch(std::vector<Group>& groups) const;
  void add_member(Agreed agreed, const ResponseCache& cache, std::size_t& new_slots,
                  BatchEntry& batch);

  const Settings& settings_;
  std::map<SetId, std::vector<Group>> agreed_;  // no vector and no group is empty
  std::uint64_t next_order_ = 0;
  std::deque<Entry> log_;
  std::uint64_t next_sequence_ = 0;
  std::unordered_set<Key, KeyHash>
      agreed_once_;  // named keys that get a slot at their second agreement
};

}  // namespace kolo::internal::negotiation
