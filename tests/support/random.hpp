// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend only on a seed, equal on every rank and machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace kolo::internal::campaign {

/// The mixer of Sebastiano Vigna's splitmix64 (public domain).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// One number from several, the same on every machine.
[[nodiscard]] inline std::uint64_t hash(std::initializer_list<std::uint64_t> values) {
  std::uint64_t result = 0;
  for (const std::uint64_t value : values) result = mixed(result ^ value);
  return result;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// A number from 0 to `count - 1`.
  [[nodiscard]] std::size_t below(std::size_t count) {
    state_ = mixed(state_);
    return static_cast<std::size_t>(state_ % count);
  }
  [[nodiscard]] int between(int first, int last) {
    return first + static_cast<int>(below(static_cast<std::size_t>(last - first + 1)));
  }
  /// True once in `count` times.
  [[nodiscard]] bool once_in(std::size_t count) { return below(count) == 0; }

  template <typename T>
  [[nodiscard]] T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  template <typename T>
  [[nodiscard]] const T& one_of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kolo::internal::campaign
