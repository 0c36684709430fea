// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/sequencer.hpp"

#include <utility>

#include "fusion/select.hpp"

namespace kolo::internal::negotiation {

void Sequencer::append(EntryBody body) { log_.push_back({next_sequence_++, std::move(body)}); }

Entry Sequencer::take_entry() {
  Entry entry = std::move(log_.front());
  log_.pop_front();
  return entry;
}

void Sequencer::agree(Key key, Descriptor descriptor, RankSet absent) {
  std::deque<Agreed>& agreed = agreed_[key.set];
  agreed.push_back({std::move(key), std::move(descriptor), std::move(absent)});
}

std::vector<SetId> Sequencer::gathering() const {
  std::vector<SetId> sets;
  for (const auto& [set, agreed] : agreed_) sets.push_back(set);
  return sets;
}

std::vector<std::size_t> Sequencer::choose(const std::deque<Agreed>& agreed) const {
  std::vector<const Descriptor*> descriptors;
  descriptors.reserve(agreed.size());
  for (const Agreed& one : agreed) descriptors.push_back(&one.descriptor);
  std::vector<std::size_t> chosen = fusion::select_batch(descriptors, fusion_threshold_);
  // All operations of a batch have the same participants.
  std::erase_if(chosen, [&](std::size_t i) { return agreed[i].absent != agreed.front().absent; });
  return chosen;
}

bool Sequencer::append_batch(SetId set, const ResponseCache& cache) {
  const auto gathered = agreed_.find(set);
  if (gathered == agreed_.end()) return false;
  std::deque<Agreed> agreed = std::move(gathered->second);
  agreed_.erase(gathered);
  const std::vector<std::size_t> chosen = choose(agreed);

  BatchEntry batch{.set = set, .absent = agreed.front().absent};
  CacheSlot next_slot = cache.size();
  std::deque<Agreed> rest;
  std::size_t next = 0;
  for (std::size_t i = 0; i < agreed.size(); ++i) {
    if (next < chosen.size() && chosen[next] == i) {
      add_member(std::move(agreed[i]), cache, next_slot, batch);
      ++next;
    } else {
      rest.push_back(std::move(agreed[i]));
    }
  }
  if (!rest.empty()) agreed_.emplace(set, std::move(rest));
  append(std::move(batch));
  return true;
}

void Sequencer::add_member(Agreed agreed, const ResponseCache& cache, CacheSlot& next_slot,
                           BatchEntry& batch) {
  const std::optional<CacheSlot> known = cache.find(agreed.key);
  if (known && cache[*known].descriptor == agreed.descriptor) {
    batch.slots.insert(*known);
    return;
  }
  UncachedOperation uncached{std::move(agreed.key), std::move(agreed.descriptor), known};
  if (!known && uncached.key.named()) {
    const bool again = agreed_once_.contains(uncached.key);
    if (again && next_slot < cache_capacity_) {
      agreed_once_.erase(uncached.key);
      uncached.slot = next_slot++;
    } else if (static_cast<std::int64_t>(agreed_once_.size()) < 4 * cache_capacity_) {
      agreed_once_.insert(uncached.key);
    } else if (!again) {
      agreed_once_.clear();  // names that never repeat must not fill the memory
      if (cache_capacity_ > 0) agreed_once_.insert(uncached.key);
    }
  }
  batch.uncached.push_back(std::move(uncached));
}

}  // namespace kolo::internal::negotiation
