// SPDX-License-Identifier: Apache-2.0
// The tree along which ranks negotiate. The ranks of a node are children of the node's leader, and
// the leaders form a tree.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "base/rank_set.hpp"

namespace kolo::internal::negotiation {

/// A child in the tree. `ranks` are all ranks of its subtree, including the child.
struct Child {
  int rank;
  RankSet ranks;
};

/// The place of one rank in the tree. The root is rank 0 and has parent -1.
struct TreePosition {
  int rank = 0;
  int ranks = 1;  // the number of ranks in the whole tree
  int parent = -1;
  std::vector<Child> children{};

  /// The number of ranks in this subtree, including this rank.
  [[nodiscard]] int below() const {
    int count = 1;
    for (const Child& child : children) count += child.ranks.count();
    return count;
  }
};

/// Returns the place of each rank. `node_of[r]` is an arbitrary number for the node of rank r. The
/// lowest rank of a node is its leader. A leader has at most `arity` leaders as children.
[[nodiscard]] inline std::vector<TreePosition> build_tree(std::span<const int> node_of,
                                                          int arity = 8) {
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
