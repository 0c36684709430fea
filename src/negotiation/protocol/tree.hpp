// SPDX-License-Identifier: Apache-2.0
// The tree along which ranks negotiate. The ranks of a node are children of the node's leader, and
// the leaders form a tree.
#pragma once

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
[[nodiscard]] std::vector<TreePosition> build_tree(std::span<const int> node_of, int arity = 8);

}  // namespace kolo::internal::negotiation
