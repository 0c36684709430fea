// SPDX-License-Identifier: Apache-2.0
// Division of a whole number of examples among ranks of different speeds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kolo::internal {

/// Largest total and largest speed that `apportion` takes: products of two fit 64 bits.
inline constexpr std::int64_t max_apportioned = std::int64_t{1} << 30;

/// The least and the most that a rank may get.
struct ShareBounds {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

/// Divides `total` so that the longest time, the greatest share / speed, is as short as whole
/// numbers within the bounds allow: D'Hondt's rule, by which each next example goes to the rank
/// that would have computed it first. Of equal ranks, the lower one gets the example. A rank of
/// speed 0 gets its minimum. Only integers are used, so all ranks and builds get the same result.
///
/// `speeds` and `bounds` have an element for each rank. Speeds and `total` are 0 to
/// `max_apportioned`. The minima add up to at most `total`, and the maxima of the ranks with a
/// speed, with the minima of the others, to at least that.
[[nodiscard]] std::vector<std::int64_t> apportion(std::int64_t total,
                                                  std::span<const std::int64_t> speeds,
                                                  std::span<const ShareBounds> bounds);

}  // namespace kolo::internal
