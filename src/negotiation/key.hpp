// By what the ranks' submissions are matched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace kolo::negotiation {

/// A name, or the number of an operation without one.
struct Key {
  std::string name{};
  std::uint64_t number = 0;  // of the unnamed operations of the session; 0 where there is a name

  [[nodiscard]] bool named() const { return !name.empty(); }
  friend bool operator==(const Key&, const Key&) = default;
};

/// As messages have it: `"weight"`, or `#3`, the third operation without a name.
[[nodiscard]] inline std::string to_string(const Key& key) {
  return key.named() ? '"' + key.name + '"' : '#' + std::to_string(key.number);
}

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return key.named() ? std::hash<std::string>{}(key.name)
                       : std::hash<std::uint64_t>{}(key.number) ^ 0x9e3779b97f4a7c15U;
  }
};

}  // namespace kolo::negotiation
