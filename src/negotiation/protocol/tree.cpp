// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/tree.hpp"

#include <cstddef>
#include <map>

namespace kolo::internal::negotiation {

std::vector<TreePosition> build_tree(std::span<const int> node_of, int arity) {
  const int ranks = static_cast<int>(node_of.size());
  std::vector<TreePosition> places(node_of.size());
  std::vector<int> leaders;
  std::map<int, int> leader_of_node;
  const auto attach = [&](int child, int parent) {
    places[static_cast<std::size_t>(child)].parent = parent;
    places[static_cast<std::size_t>(parent)].children.push_back({child, RankSet::of(child)});
  };
  for (int rank = 0; rank < ranks; ++rank) {
    TreePosition& place = places[static_cast<std::size_t>(rank)];
    place.rank = rank;
    place.ranks = ranks;
    const auto [leader, first] =
        leader_of_node.try_emplace(node_of[static_cast<std::size_t>(rank)], rank);
    if (!first) {
      attach(rank, leader->second);
      continue;
    }
    // The leaders form a heap: the parent of leader i is leader (i - 1) / arity.
    const int position = static_cast<int>(leaders.size());
    if (position > 0) attach(rank, leaders[static_cast<std::size_t>((position - 1) / arity)]);
    leaders.push_back(rank);
  }
  // A parent's rank is lower than those of its children. So in descending order, each subtree is
  // complete before it is added to the subtree of its parent.
  for (std::size_t rank = places.size(); rank-- > 1;) {
    TreePosition& parent = places[static_cast<std::size_t>(places[rank].parent)];
    for (Child& child : parent.children) {
      if (child.rank != places[rank].rank) continue;
      for (const Child& below : places[rank].children) child.ranks.insert(below.ranks);
    }
  }
  return places;
}

}  // namespace kolo::internal::negotiation
