// SPDX-License-Identifier: Apache-2.0
// The order in which hosts are combined. It depends only on their number, so sums have the same
// bits with any algorithm, tensor length and batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/internode/placement.hpp"

namespace kolo::internal::backend::internode {

/// The prime factors of the number of hosts in ascending order. Neighboring hosts are combined in
/// groups whose size is the first factor, then these groups in groups of the second, and so on:
/// four hosts as (0 + 1) + (2 + 3).
[[nodiscard]] std::vector<int> factors_of(int hosts);

/// Combines groups until the number of inputs is the last factor, and returns these inputs. Calls
/// `combine(inputs, output)`, where `output` is one of the inputs. All inputs may be overwritten,
/// except `kept`.
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

/// The owners that exchange data in one step of an algorithm that has a step for each factor. In a
/// step with distance d, these are owners whose places differ by multiples of d, one in each group
/// of d neighbors.
struct StepGroup {
  int distance = 1;
  int factor = 2;

  [[nodiscard]] int own_digit(const Owners& owners) const { return owners.own / distance % factor; }
  /// The rank of the owner with this digit, its place in the group.
  [[nodiscard]] int rank_with(const Owners& owners, int digit) const {
    return owners.rank(owners.own + (digit - own_digit(owners)) * distance);
  }
  /// Calls `use(digit)` for the other owners of the group. Each owner starts with its successor, to
  /// spread the load.
  template <typename Use>
  void for_each_other(const Owners& owners, Use use) const {
    for (int next = 1; next < factor; ++next) use((own_digit(owners) + next) % factor);
  }
  /// The index of another owner's version among the versions of all other owners.
  [[nodiscard]] int place_of(const Owners& owners, int digit) const {
    return digit < own_digit(owners) ? digit : digit - 1;
  }
};

/// One group for each factor.
[[nodiscard]] std::vector<StepGroup> step_groups(int owners);

}  // namespace kolo::internal::backend::internode
