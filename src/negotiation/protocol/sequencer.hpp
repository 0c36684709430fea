// SPDX-License-Identifier: Apache-2.0
// Turns agreed operations into entries of the log. Used by the root only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "fusion/select.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

class Sequencer {
 public:
  /// `settings` outlives this object.
  explicit Sequencer(const Settings& settings) : settings_(settings) {}

  /// Adds an operation that all members of the key's set, except the absent ones, have submitted
  /// with the same descriptor. It waits for a batch.
  void agree(Key key, Descriptor descriptor, RankSet absent) {
    std::vector<Group>& groups = agreed_[key.set];
    Agreed agreed{next_order_++, std::move(key), std::move(descriptor), std::move(absent)};
    auto group =
        std::ranges::find_if(groups, [&](const Group& its) { return belongs(agreed, its); });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->push_back(std::move(agreed));
  }

  /// Drops the waiting operations of a set, because their ranks have withdrawn them.
  void forget(SetId set) { agreed_.erase(set); }

  /// Drops everything about a removed set, whose keys never come again.
  void remove(SetId set) {
    forget(set);
    std::erase_if(agreed_once_, [set](const Key& key) { return key.set == set; });
  }

  /// Appends one batch of waiting operations of a set. False if none are waiting.
  bool append_batch(SetId set, const ResponseCache& cache) {
    const auto gathered = agreed_.find(set);
    if (gathered == agreed_.end()) return false;
    std::vector<Agreed> members = take_batch(gathered->second);
    if (gathered->second.empty()) agreed_.erase(gathered);

    BatchEntry batch{.set = set, .absent = members.front().absent};
    std::size_t new_slots = 0;
    for (Agreed& member : members) add_member(std::move(member), cache, new_slots, batch);
    append(std::move(batch));
    return true;
  }

  /// The sets with waiting operations.
  [[nodiscard]] std::vector<SetId> gathering() const {
    std::vector<SetId> sets;
    for (const auto& [set, agreed] : agreed_) sets.push_back(set);
    return sets;
  }

  void append(EntryBody body) { log_.push_back({next_sequence_++, std::move(body)}); }

  // Entries are taken in the order of the log.
  [[nodiscard]] bool has_entry() const { return !log_.empty(); }
  Entry take_entry() {
    Entry entry = std::move(log_.front());
    log_.pop_front();
    return entry;
  }

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

  [[nodiscard]] static bool belongs(const Agreed& one, const Group& group) {
    const Agreed& first = group.front();
    if (fusion::travels_alone(one.descriptor)) return fusion::travels_alone(first.descriptor);
    return one.absent == first.absent && fusion::fusible(one.descriptor, first.descriptor);
  }
  /// Removes the operation that was agreed first and the operations that are fused with it.
  std::vector<Agreed> take_batch(std::vector<Group>& groups) const {
    const auto group =
        std::ranges::min_element(groups, {}, [](const Group& its) { return its.front().order; });
    const std::vector<std::size_t> chosen = fusion::select_batch(
        group->size(), [&](std::size_t i) -> const Descriptor& { return (*group)[i].descriptor; },
        settings_.fusion_threshold);
    std::vector<Agreed> batch;
    std::vector<Agreed> passed_over;
    for (std::size_t i = 0; i <= chosen.back(); ++i) {
      const bool is_chosen = chosen[batch.size()] == i;
      (is_chosen ? batch : passed_over).push_back(std::move(group->front()));
      group->pop_front();
    }
    while (!passed_over.empty()) {
      group->push_front(std::move(passed_over.back()));
      passed_over.pop_back();
    }
    if (group->empty()) groups.erase(group);
    return batch;
  }
  void add_member(Agreed agreed, const ResponseCache& cache, std::size_t& new_slots,
                  BatchEntry& batch) {
    const std::optional<CacheSlot> known = cache.find(agreed.key);
    if (known && cache[*known].descriptor == agreed.descriptor) {
      batch.slots.insert(*known);
      return;
    }
    UncachedOperation uncached{std::move(agreed.key), std::move(agreed.descriptor), known};
    if (!known && uncached.key.named()) {
      const bool again = agreed_once_.contains(uncached.key);
      const CacheSlot slot = cache.vacant(new_slots);
      if (again && slot < settings_.cache_capacity) {
        agreed_once_.erase(uncached.key);
        uncached.slot = slot;
        ++new_slots;
      } else if (static_cast<std::int64_t>(agreed_once_.size()) / 4 < settings_.cache_capacity) {
        agreed_once_.insert(uncached.key);
      } else if (!again) {
        agreed_once_.clear();  // bounds the memory for names that never repeat
        if (settings_.cache_capacity > 0) agreed_once_.insert(uncached.key);
      }
    }
    batch.uncached.push_back(std::move(uncached));
  }

  const Settings& settings_;
  std::map<SetId, std::vector<Group>> agreed_;  // contains no empty vectors or groups
  std::uint64_t next_order_ = 0;
  std::deque<Entry> log_;
  std::uint64_t next_sequence_ = 0;
  std::unordered_set<Key, KeyHash>
      agreed_once_;  // named keys that get a slot at their second agreement
};

}  // namespace kolo::internal::negotiation
