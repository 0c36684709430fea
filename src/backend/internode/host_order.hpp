// SPDX-License-Identifier: Apache-2.0
// The order in which hosts are combined. It depends on their number only, so sums have the same
// bits whatever the algorithm, the length of the tensor and the batch that it travels in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/internode/placement.hpp"

namespace kolo::internal::backend::internode {

/// The prime factors of the number of hosts, the smallest first. Hosts are combined in groups of as
/// many neighbors as the first factor, then the groups in groups of the second, and so on: four as
/// (0 + 1) + (2 + 3).
[[nodiscard]] std::vector<int> factors_of(int hosts);

/// Combines groups until as many inputs are left as the last factor, and returns these. Calls
/// `combine(inputs, output)`; the output is one of the inputs, which are overwritten, but for
/// `kept`.
template <typename Combine>
[[nodiscard]] std::vector<const std::byte*> combine_groups(std::vector<std::byte*> inputs,
                                                           const std::byte* kept, Combine combine) {
  std::vector<int> factors = factors_of(static_cast<int>(inputs.size()));
  if (!factors.empty()) factors.pop_back();
  for (const int factor : factors) {
    std::vector<std::byte*> combined;
    for (std::size_t first = 0; first < inputs.size(); first += static_cast<std::size_t>(factor)) {
      const std::span group(&inputs[first], static_cast<std::size_t>(factor));
      std::byte* const output = group[0] == kept ? group[1] : group[0];
      const std::vector<const std::byte*> of_group(group.begin(), group.end());
      combine(of_group, output);
      combined.push_back(output);
    }
    inputs = std::move(combined);
  }
  return {inputs.begin(), inputs.end()};
}

/// The owners that exchange data in one step of an algorithm with a step for each factor: in a step
/// with distance d, those whose places differ by multiples of d, one in each group of d neighbors.
struct StepGroup {
  int distance = 1;
  int factor = 2;

  [[nodiscard]] int own_digit(const Owners& owners) const { return owners.own / distance % factor; }
  /// The rank of the owner at this place in the group.
  [[nodiscard]] int rank_with(const Owners& owners, int digit) const {
    return owners.rank(owners.own + (digit - own_digit(owners)) * distance);
  }
  /// Calls `use(digit)` for the others, each owner in another order, so that not all send to the
  /// same one first.
  template <typename Use>
  void for_each_other(const Owners& owners, Use use) const {
    for (int next = 1; next < factor; ++next) use((own_digit(owners) + next) % factor);
  }
  /// The place of the version of another owner among those of all others.
  [[nodiscard]] int place_of(const Owners& owners, int digit) const {
    return digit < own_digit(owners) ? digit : digit - 1;
  }
};

/// One for each factor.
[[nodiscard]] std::vector<StepGroup> step_groups(int owners);

}  // namespace kolo::internal::backend::internode
