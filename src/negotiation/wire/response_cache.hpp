// SPDX-License-Identifier: Apache-2.0
// Numbers for repeated operations, so that a steady training step sends one bit per operation.
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

/// The number of an operation in the response cache.
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

  /// Calls `visit(slot)` for each, ascending.
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

/// Invariant: only entries of the log change a cache, so all ranks that have applied the same
/// entries have the same cache, and a slot means the same operation on each.
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
    return slot && items_[*slot].descriptor == descriptor ? slot : std::nullopt;
  }

  [[nodiscard]] bool has(CacheSlot slot) const { return slot < items_.size(); }
  [[nodiscard]] const Item& operator[](CacheSlot slot) const { return items_[slot]; }
  [[nodiscard]] CacheSlot size() const { return static_cast<CacheSlot>(items_.size()); }

  /// Enters a new key into the next slot, or renews the descriptor of a known key. False if `slot`
  /// is neither.
  [[nodiscard]] bool enter(CacheSlot slot, const Key& key, const Descriptor& descriptor) {
    if (slot < items_.size() && items_[slot].key == key) {
      items_[slot].descriptor = descriptor;
      return true;
    }
    if (slot != items_.size() || slots_.contains(key)) return false;
    items_.push_back({key, descriptor});
    slots_.emplace(key, slot);
    return true;
  }

 private:
  std::vector<Item> items_;
  std::unordered_map<Key, CacheSlot, KeyHash> slots_;
};

}  // namespace kolo::internal::negotiation
