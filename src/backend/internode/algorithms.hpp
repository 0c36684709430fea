// SPDX-License-Identifier: Apache-2.0
// The algorithms that reduce a slice between hosts: their choice, and the order in which all of
// them combine hosts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/internode/placement.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend::internode {

/// All algorithms combine the hosts in the same order and give the same bits.
enum class InterNodeAlgorithm : std::uint8_t {
  whole,     ///< Each owner sends its input to all others: one message time. For few owners.
  direct,    ///< Each owner reduces a section for all: two message times, sent to all at once.
  doubling,  ///< Each owner exchanges everything in log2(owners) steps.
  halving,   ///< Each owner exchanges ever shorter sections, and then the results in reverse.
};

/// With more owners, messages to all at once take longer than a few messages in sequence.
inline constexpr int max_owners_at_once = 8;

/// The algorithm for so many owners, at least two, and elements. `wire`: the type of the results.
[[nodiscard]] InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire);

/// The prime factors of the number of hosts, the smallest first. They give the order in which hosts
/// are combined, which depends on the number of hosts only. So sums have the same bits whatever the
/// algorithm, the length of the tensor and the batch. Neighbors are combined in groups of the first
/// factor, then the groups in groups of the second, and so on: four hosts as (0 + 1) + (2 + 3).
[[nodiscard]] std::vector<int> factors_of(int hosts);

/// Combines groups until as many inputs are left as the last factor, and returns them. Calls
/// `combine(inputs, output)`, where the output is one of the inputs. All inputs but `kept` are
/// overwritten.
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

/// The owners that exchange data in one step of an algorithm with a step for each factor. In a step
/// with distance d, these are owners whose places differ by multiples of d, one in each group of d
/// neighbors.
struct StepGroup {
  int distance = 1;
  int factor = 2;

  [[nodiscard]] int own_digit(const Owners& owners) const { return owners.own / distance % factor; }
  /// The rank of the owner at this place in the group.
  [[nodiscard]] int rank_with(const Owners& owners, int digit) const {
    return owners.rank(owners.own + (digit - own_digit(owners)) * distance);
  }
  /// Calls `use(digit)` for the other owners of the group, on each owner in a different order, so
  /// that not all send to the same one first.
  template <typename Use>
  void for_each_other(const Owners& owners, Use use) const {
    for (int next = 1; next < factor; ++next) use((own_digit(owners) + next) % factor);
  }
  /// The place of another owner's data in a list without this owner's.
  [[nodiscard]] int place_of(const Owners& owners, int digit) const {
    return digit < own_digit(owners) ? digit : digit - 1;
  }
};

/// The groups of all steps, one for each factor.
[[nodiscard]] std::vector<StepGroup> step_groups(int owners);

}  // namespace kolo::internal::backend::internode
