// SPDX-License-Identifier: Apache-2.0
// The tree along which ranks negotiate: the ranks of a node below their leader, the leaders in a
// tree.
#pragma once

#include <span>
#include <vector>

#include "base/rank_set.hpp"

namespace kolo::internal::negotiation {

/// A child in the tree, with all ranks of its subtree, itself included.
struct Child {
  int rank;
  RankSet ranks;
};

/// One rank's place. The root, rank 0, has parent -1.
struct TreePosition {
  int rank = 0;
  int ranks = 1;  // in the whole tree
  int parent = -1;
  std::vector<Child> children{};

  /// How many ranks are in this subtree, this one included.
  [[nodiscard]] int below() const {
    int count = 1;
    for (const Child& child : children) count += child.ranks.count();
    return count;
  }
};

/// `node_of[r]` is the node of rank r, any number. The lowest rank of a node is its leader. A
/// leader has at most `arity` leaders as children.
[[nodiscard]] std::vector<TreePosition> build_tree(std::span<const int> node_of, int arity = 8);

}  // namespace kolo::internal::negotiation
