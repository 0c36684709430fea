// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/groups.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace kolo::internal::backend::shm {

std::optional<Groups> Groups::of(std::span<const int> local_ranks, int own,
                                 const NumaNodes& nodes) {
  if (nodes.of_ranks.empty() || std::ssize(local_ranks) <= nodes.max_ranks_flat)
    return std::nullopt;
  std::map<int, std::vector<int>> by_node;
  for (std::size_t rank = 0; rank < local_ranks.size(); ++rank)
    by_node[nodes.of_ranks[static_cast<std::size_t>(local_ranks[rank])]].push_back(
        static_cast<int>(rank));
  if (by_node.size() < 2 || by_node.contains(-1)) return std::nullopt;
  std::vector<std::vector<int>> groups;
  for (auto& [node, ranks] : by_node) groups.push_back(std::move(ranks));
  // The size of the smallest group decides how many ranks of every group reduce.
  const auto [smallest, largest] = std::ranges::minmax_element(groups, {}, &std::vector<int>::size);
  if (std::cmp_less(smallest->size(), nodes.min_ranks_of_group) ||
      largest->size() > smallest->size() * static_cast<std::size_t>(nodes.max_unevenness))
    return std::nullopt;
  return Groups(std::move(groups), own);
}

Groups::Groups(std::vector<std::vector<int>> groups, int own_rank) : groups_(std::move(groups)) {
  for (int group = 0; group < size(); ++group) {
    const auto found = std::ranges::lower_bound(ranks(group), own_rank);
    if (found == ranks(group).end() || *found != own_rank) continue;
    own_ = group;
    place_ = static_cast<std::size_t>(found - ranks(group).begin());
  }
}

int Groups::owners() const {
  return static_cast<int>(std::ranges::min_element(groups_, {}, &std::vector<int>::size)->size());
}

std::vector<int> Groups::counterparts() const {
  std::vector<int> found;
  if (static_cast<int>(place_) >= owners()) return found;
  for (int group = 0; group < size(); ++group)
    if (group != own_) found.push_back(ranks(group)[place_]);
  return found;
}

}  // namespace kolo::internal::backend::shm
