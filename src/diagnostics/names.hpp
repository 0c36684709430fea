// SPDX-License-Identifier: Apache-2.0
// Short numbers for the names of operations, with the uses of each name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::diagnostics {

/// Never shrinks its tables, and allocates nothing for a known name. Names whose last use is long
/// ago are forgotten to make room for new ones. Not thread-safe.
class Names {
 public:
  struct alignas(64) Entry {
    std::shared_ptr<const std::string> text{};  // the timeline's writer may keep it longer
    std::uint32_t set = 0;
    std::uint32_t pending = 0;    // operations that are not finished
    std::uint64_t submitted = 0;  // operations submitted in this round
    std::uint32_t round = 0;
    std::uint64_t last_use = 0;  // in the caller's count of uses
    std::uint32_t track = 0;     // the name's track in the timeline with the number `timeline`
    std::uint32_t timeline = 0;
    std::size_t hash = 0;
  };

  /// A name may be forgotten once `kept` uses of other names have followed its last use.
  explicit Names(std::uint64_t kept);

  /// The number of the name, which is added if it is new. `use` counts all uses of all names.
  [[nodiscard]] std::uint32_t find(std::string_view text, std::uint32_t set, std::uint64_t use);

  [[nodiscard]] Entry& operator[](std::uint32_t id) { return entries_[id]; }
  [[nodiscard]] const Entry& operator[](std::uint32_t id) const { return entries_[id]; }
  /// All numbers are below `end()`. Entries without a text are free.
  [[nodiscard]] std::uint32_t end() const { return static_cast<std::uint32_t>(entries_.size()); }
  /// How many times names were forgotten. While it does not change, all numbers stay valid.
  [[nodiscard]] std::uint64_t losses() const { return losses_; }

 private:
  std::uint32_t add(std::string_view text, std::uint32_t set, std::size_t hash, std::uint64_t use);
  void make_room(std::uint64_t use);
  void insert(std::uint32_t id);

  std::uint64_t kept_;
  std::vector<Entry> entries_{};
  std::vector<std::uint32_t> free_{};
  // A hash table with open addressing. Its size is a power of two; at most half of it is used.
  std::vector<std::uint32_t> buckets_;
  std::uint64_t losses_ = 0;
};

}  // namespace kolo::internal::diagnostics
