// A set of slots as bits: what a steady training step sends.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kolo::negotiation {

using Slot = std::uint32_t;

class SlotSet {
 public:
  SlotSet() = default;
  explicit SlotSet(std::vector<std::uint64_t> words) : words_(std::move(words)) {}

  void insert(Slot slot) {
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
        visit(static_cast<Slot>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  }

  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return words_; }
  friend bool operator==(const SlotSet&, const SlotSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace kolo::negotiation
