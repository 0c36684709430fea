#include "negotiation/sequencer.hpp"

#include <utility>

#include "fusion/plan.hpp"

namespace kolo::negotiation {

void Sequencer::append_entry(decltype(Entry::body) body) {
  log_.push_back({next_sequence_++, std::move(body)});
}

Entry Sequencer::take_entry() {
  Entry entry = std::move(log_.front());
  log_.pop_front();
  return entry;
}

void Sequencer::complete(Readiness readiness) {
  if (readiness.variants.size() > 1 || !readiness.others.empty()) {
    append_entry(MismatchEntry{std::move(readiness)});
  } else {
    agreed_.push_back({std::move(readiness.key), std::move(readiness.variants.front().descriptor)});
  }
}

bool Sequencer::append_batch(const Catalogue& catalogue) {
  if (agreed_.empty()) return false;
  std::vector<const Descriptor*> descriptors;
  descriptors.reserve(agreed_.size());
  for (const Agreed& agreed : agreed_) descriptors.push_back(&agreed.descriptor);
  const std::vector<std::size_t> chosen = fusion::plan_batch(descriptors, fusion_threshold_);

  BatchEntry batch;
  Slot next_slot = catalogue.size();
  std::deque<Agreed> rest;
  std::size_t next = 0;
  for (std::size_t i = 0; i < agreed_.size(); ++i) {
    if (next < chosen.size() && chosen[next] == i) {
      add_member(std::move(agreed_[i]), catalogue, next_slot, batch);
      ++next;
    } else {
      rest.push_back(std::move(agreed_[i]));
    }
  }
  agreed_ = std::move(rest);
  append_entry(std::move(batch));
  return true;
}

void Sequencer::add_member(Agreed agreed, const Catalogue& catalogue, Slot& next_slot,
                           BatchEntry& batch) {
  const std::optional<Slot> known = catalogue.find(agreed.key);
  if (known && catalogue[*known].descriptor == agreed.descriptor) {
    batch.slots.insert(*known);
    return;
  }
  Spelled spelled{std::move(agreed.key), std::move(agreed.descriptor), known};
  if (!known && spelled.key.named()) {
    const bool again = agreed_once_.contains(spelled.key);
    if (again && next_slot < cache_capacity_) {
      agreed_once_.erase(spelled.key);
      spelled.slot = next_slot++;
    } else if (static_cast<std::int64_t>(agreed_once_.size()) < 4 * cache_capacity_) {
      agreed_once_.insert(spelled.key);
    } else if (!again) {
      agreed_once_.clear();  // names that never repeat must not fill the memory
      if (cache_capacity_ > 0) agreed_once_.insert(spelled.key);
    }
  }
  batch.spelled.push_back(std::move(spelled));
}

}  // namespace kolo::negotiation
