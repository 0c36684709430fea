// SPDX-License-Identifier: Apache-2.0
// A cache that assigns slots to repeated operations, so that a steady training step sends one bit
// per operation.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/key.hpp"

namespace kolo::internal::negotiation {

/// The index of an operation in the response cache.
using CacheSlot = std::uint32_t;

class CacheSlotSet {
 public:
  CacheSlotSet() = default;
  explicit CacheSlotSet(std::vector<std::uint64_t> words) : words_(std::move(words)) {}

  void insert(CacheSlot slot) {
    if (slot / 64 >= words_.size()) words_.resize(slot / 64 + 1);
    words_[slot / 64] |= std::uint64_t{1} << (slot % 64);
  }

  [[nodiscard]] bool empty() const {
    for (const std::uint64_t word : words_)
      if (word != 0) return false;
    return true;
  }

  /// Calls `visit(slot)` for each slot, ascending.
  template <typename Visitor>
  void for_each(Visitor visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1)
        visit(static_cast<CacheSlot>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  }

  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return words_; }
  friend bool operator==(const CacheSlotSet&, const CacheSlotSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

/// Invariant: only entries of the log change a cache. So all ranks that have applied the same
/// entries have the same cache, and a slot means the same operation on each of them. Removing a
/// process set frees slots for other keys. The receiver of a slot from another rank must therefore
/// check whether the slot was freed after the sender's last removal.
class ResponseCache {
 public:
  struct Item {
    Key key;
    Descriptor descriptor;  // as in the last entry for the key
  };

  [[nodiscard]] std::optional<CacheSlot> find(const Key& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The slot of `key` if its last entry had exactly this descriptor.
  [[nodiscard]] std::optional<CacheSlot> find(const Key& key, const Descriptor& descriptor) const {
    const std::optional<CacheSlot> slot = find(key);
    return slot && items_[*slot].item.descriptor == descriptor ? slot : std::nullopt;
  }

  [[nodiscard]] bool has(CacheSlot slot) const {
    return slot < items_.size() && !items_[slot].is_free;
  }
  [[nodiscard]] const Item& operator[](CacheSlot slot) const { return items_[slot].item; }

  /// The slot that new key number `place`, counted from 0, will get if several new keys are entered
  /// in turn. Free slots are reused, lowest first, before new slots are added.
  [[nodiscard]] CacheSlot vacant(std::size_t place) const {
    if (place < free_.size()) return free_[free_.size() - 1 - place];
    return static_cast<CacheSlot>(items_.size() + place - free_.size());
  }

  /// Enters a new key into the first vacant slot, or replaces the descriptor of a known key. False
  /// if `slot` is neither vacant nor the slot of this key.
  [[nodiscard]] bool enter(CacheSlot slot, const Key& key, const Descriptor& descriptor) {
    if (has(slot) && items_[slot].item.key == key) {
      items_[slot].item.descriptor = descriptor;
      return true;
    }
    if (slot != vacant(0) || slots_.contains(key)) return false;
    if (free_.empty()) {
      items_.emplace_back();
    } else {
      free_.pop_back();
    }
    items_[slot].item = {key, descriptor};
    items_[slot].is_free = false;
    slots_.emplace(key, slot);
    return true;
  }

  /// Frees the slots of all keys of a process set.
  void remove(SetId set) {
    ++removals_;
    free_.clear();
    for (CacheSlot slot = static_cast<CacheSlot>(items_.size()); slot-- > 0;) {
      Place& place = items_[slot];
      if (!place.is_free && place.item.key.set == set) {
        slots_.erase(place.item.key);
        place = {.is_free = true, .freed = removals_};
      }
      if (place.is_free) free_.push_back(slot);
    }
  }

  /// The number of removed sets.
  [[nodiscard]] std::uint64_t removals() const { return removals_; }
  /// True if the slot was freed after this many removals: a sender that knew only of these meant a
  /// key that has been removed.
  [[nodiscard]] bool was_freed_after(CacheSlot slot, std::uint64_t removals) const {
    return slot < items_.size() && items_[slot].freed > removals;
  }

 private:
  struct Place {
    Item item{};
    bool is_free = false;
    std::uint64_t freed = 0;  // the number of the removal that freed the slot last; 0: never
  };

  std::vector<Place> items_;
  std::vector<CacheSlot> free_;  // descending
  std::unordered_map<Key, CacheSlot, KeyHash> slots_;
  std::uint64_t removals_ = 0;
};

}  // namespace kolo::internal::negotiation
