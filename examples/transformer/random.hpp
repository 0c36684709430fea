// SPDX-License-Identifier: Apache-2.0
// Random numbers that are equal with every compiler, unlike the standard library's distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace gpt {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// From 0 to `end - 1`.
  std::uint64_t below(std::uint64_t end) { return engine_() % end; }

  /// From 0 (included) to 1 (excluded).
  double fraction() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  /// Mean 0, deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - fraction()));
    return radius * std::cos(2.0 * std::numbers::pi * fraction());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace gpt
