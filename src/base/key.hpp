// SPDX-License-Identifier: Apache-2.0
// The key by which the ranks' submissions are matched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

namespace kolo::internal {

/// The number of a process set. It is never reused in a session.
using SetId = std::int64_t;
inline constexpr SetId world_set = 0;

/// Reserved numbers, which no unnamed operation reaches: all joins share one key, and all changes
/// of process sets share another.
inline constexpr std::uint64_t join_number = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t set_change_number = join_number - 1;

/// The operation by which ranks agree to stop (`stop_requested`). They submit it before they know
/// whether they will need the answer: at the end of a training some ranks never do.
inline constexpr std::string_view stop_operation = "kolo.stop_requested";

/// The identity of an operation within its process set: its name, or its number if it is unnamed.
struct Key {
  std::string name{};
  std::uint64_t number = 0;  // counts the unnamed operations of the set; 0 if there is a name
  SetId set = world_set;

  [[nodiscard]] bool named() const { return !name.empty(); }
  /// True for a join and for a change of the process sets.
  [[nodiscard]] bool reserved() const { return !named() && number >= set_change_number; }
  friend bool operator==(const Key&, const Key&) = default;
};

/// The spelling in messages: `"weight"`, or `#3` for the third unnamed operation; followed by the
/// process set unless it is the world.
[[nodiscard]] inline std::string to_string(const Key& key) {
  if (key.reserved()) return key.number == join_number ? "(join)" : "(change of process sets)";
  std::string text = key.named() ? '"' + key.name + '"' : '#' + std::to_string(key.number);
  if (key.set != world_set) text += " of process set " + std::to_string(key.set);
  return text;
}

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const std::size_t hash = key.named()
                                 ? std::hash<std::string>{}(key.name)
                                 : std::hash<std::uint64_t>{}(key.number) ^ 0x9e3779b97f4a7c15U;
    return hash ^ (static_cast<std::size_t>(key.set) * 0x9e3779b97f4a7c15U);
  }
};

}  // namespace kolo::internal
