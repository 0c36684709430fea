// SPDX-License-Identifier: Apache-2.0
// Short numbers for the names of operations, and how often each was used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::diagnostics {

/// Gives no memory back, and takes none for a name that it knows. Names that were used last long
/// ago make room for new ones. Not thread-safe.
class Names {
 public:
  struct alignas(64) Entry {
    std::shared_ptr<const std::string> text{};  // shared with writers that use it later
    std::uint32_t set = 0;
    std::uint32_t pending = 0;    // operations
    std::uint64_t submitted = 0;  // operations in this round
    std::uint32_t round = 0;
    std::uint64_t last_use = 0;  // in the count of the caller
    std::uint32_t track = 0;     // of the timeline with this number
    std::uint32_t timeline = 0;
    std::size_t hash = 0;
  };

  /// A name may be forgotten when `kept` uses of others have followed its last one.
  explicit Names(std::uint64_t kept);

  /// The number of the name, which is known from now on. `use` counts all uses of all names.
  [[nodiscard]] std::uint32_t find(std::string_view text, std::uint32_t set, std::uint64_t use);

  [[nodiscard]] Entry& operator[](std::uint32_t id) { return entries_[id]; }
  [[nodiscard]] const Entry& operator[](std::uint32_t id) const { return entries_[id]; }
  /// Numbers are below; some may be free, without a text.
  [[nodiscard]] std::uint32_t end() const { return static_cast<std::uint32_t>(entries_.size()); }
  /// How often names were forgotten. While it stays the same, so do the numbers of all names.
  [[nodiscard]] std::uint64_t losses() const { return losses_; }

 private:
  std::uint32_t add(std::string_view text, std::uint32_t set, std::size_t hash, std::uint64_t use);
  void make_room(std::uint64_t use);
  void insert(std::uint32_t id);

  std::uint64_t kept_;
  std::vector<Entry> entries_{};
  std::vector<std::uint32_t> free_{};
  std::vector<std::uint32_t> buckets_;  // open addressing, a power of two, at most half full
  std::uint64_t losses_ = 0;
};

}  // namespace kolo::internal::diagnostics
