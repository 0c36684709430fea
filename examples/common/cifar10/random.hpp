// SPDX-License-Identifier: Apache-2.0
// Random numbers that are equal with every compiler, unlike the standard library's distributions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace cifar10 {

using Random = std::mt19937_64;

/// A separate stream for each list of numbers, e.g. `random_stream({seed, epoch, rank})`.
inline Random random_stream(std::initializer_list<std::uint64_t> numbers) {
  std::seed_seq::result_type words[16] = {};
  std::size_t count = 0;
  for (const std::uint64_t number : numbers) {
    words[count++] = static_cast<std::uint32_t>(number);
    words[count++] = static_cast<std::uint32_t>(number >> 32);
  }
  std::seed_seq seed(words, words + count);
  return Random(seed);
}

/// From 0 to `end - 1`.
inline std::uint64_t draw_below(Random& random, std::uint64_t end) { return random() % end; }

/// From 0 (included) to 1 (excluded).
inline double draw_fraction(Random& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

}  // namespace cifar10
