// What each slot stands for. Every rank's catalogue is the same function of the log.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "base/descriptor.hpp"
#include "negotiation/key.hpp"
#include "negotiation/slot_set.hpp"

namespace kolo::negotiation {

class Catalogue {
 public:
  struct Item {
    Key key;
    Descriptor descriptor;  // as at the last entry for the key
  };

  [[nodiscard]] std::optional<Slot> find(const Key& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The slot of `key` if its last entry had this very descriptor.
  [[nodiscard]] std::optional<Slot> find(const Key& key, const Descriptor& descriptor) const {
    const std::optional<Slot> slot = find(key);
    return slot && items_[*slot].descriptor == descriptor ? slot : std::nullopt;
  }

  [[nodiscard]] bool has(Slot slot) const { return slot < items_.size(); }
  [[nodiscard]] const Item& operator[](Slot slot) const { return items_[slot]; }
  [[nodiscard]] Slot size() const { return static_cast<Slot>(items_.size()); }

  /// Enters a new key into the next slot, or renews the descriptor of a known one. False if `slot`
  /// is neither.
  [[nodiscard]] bool enter(Slot slot, const Key& key, const Descriptor& descriptor) {
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
  std::unordered_map<Key, Slot, KeyHash> slots_;
};

}  // namespace kolo::negotiation
